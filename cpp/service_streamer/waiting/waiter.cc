#include "service_streamer/waiting/waiter.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <new>
#include <system_error>
#include <utility>

#include "service_streamer/base/file_descriptor.h"

namespace service_streamer {
namespace {

struct FreeList {
  Mutex mutex;
  Waiter* first GUARDED_BY(mutex) = nullptr;
};

FreeList& free_list() {
  static FreeList* list = new FreeList;  // leaked: threads may still return waiters while the process ends
  return *list;
}

// One with an eventfd, which stays open as long as a late wake-up may be written to it: as long as the process.
struct EventWaiter : Waiter {
  explicit EventWaiter(int fd) : Waiter(fd), event(fd), generation(ForkLock::generation()) {}

  const int event;
  const std::uint32_t generation;
  std::atomic<bool> in_use{true};
  EventWaiter* next = nullptr;
};

// All there are: as many as were in use at once. Without a lock, so that no forked child can find it locked; nothing is taken out.
std::atomic<EventWaiter*> event_waiters{nullptr};

EventWaiter& make_event_waiter() {
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  auto* made = new (std::nothrow) EventWaiter(fd);
  if (made == nullptr) {
    close(fd);
    throw std::bad_alloc();
  }
  made->next = event_waiters.load(std::memory_order_relaxed);
  while (!event_waiters.compare_exchange_weak(made->next, made, std::memory_order_release)) {
  }
  return *made;
}

// Stands in Completion::waiter_ once nobody may register there any more.
Waiter* taken() {
  static Waiter sentinel;
  return &sentinel;
}

}  // namespace

Waiter& WaiterPool::acquire() {
  FreeList& list = free_list();
  {
    MutexLock lock(list.mutex);
    if (Waiter* waiter = list.first) {
      list.first = waiter->next_free;
      return *waiter;
    }
  }
  return *new Waiter;
}

void WaiterPool::release(Waiter& waiter) {
  FreeList& list = free_list();
  MutexLock lock(list.mutex);
  waiter.next_free = list.first;
  list.first = &waiter;
}

Waiter& WaiterPool::acquire_with_event(int& event) {
  EventWaiter* waiter = event_waiters.load(std::memory_order_acquire);
  // Those of the parent have descriptors that are not ours.
  while (waiter != nullptr &&
         (waiter->generation != ForkLock::generation() || waiter->in_use.exchange(true, std::memory_order_acquire))) {
    waiter = waiter->next;
  }
  if (waiter == nullptr) waiter = &make_event_waiter();
  event = waiter->event;
  return *waiter;
}

void WaiterPool::release_with_event(Waiter& waiter) {
  static_cast<EventWaiter&>(waiter).in_use.store(false, std::memory_order_release);
}

Completion::Wait Completion::wait(Waiter& waiter, TimePoint deadline, Duration spin) {
  return wait_by(waiter, deadline, [&](TimePoint until) { return waiter.parker.park(until, spin); });
}

// False: another thread came first.
bool Completion::enter(Waiter& waiter) {
  Waiter* nobody = nullptr;
  return waiter_.compare_exchange_strong(nobody, &waiter, std::memory_order_acq_rel);
}

// False: taken by who publishes.
bool Completion::leave(Waiter& waiter) {
  Waiter* self = &waiter;
  return waiter_.compare_exchange_strong(self, nullptr, std::memory_order_acq_rel);
}

void Completion::wake_next(Waiter& waiter) {
  if (Waiter* next = std::exchange(waiter.next_to_wake, nullptr)) next->parker.unpark();
}

Completion::Wait Completion::wait_in_crowd(TimePoint deadline) {
  while ((state_.fetch_or(kCrowd, std::memory_order_acq_rel) & kDone) == 0) {
    const Parker::Wake wake = wait_on(state_, kCrowd, deadline);
    if (wake != Parker::Wake::kUnparked && !done()) {
      return wake == Parker::Wake::kTimeout ? Wait::kTimeout : Wait::kInterrupted;
    }
  }
  return Wait::kDone;
}

WakeChain::WakeChain(std::size_t completions, bool gathers)
    : gathers_(gathers && completions > kWakeAllUpTo),
      chains_(gathers_ || completions <= kWakeAllUpTo ? kMostChains : 1) {
  static_assert(kWakeAllUpTo <= kMostChains);  // a few are chains of one
}

void WakeChain::publish(Completion& completion) {
  Waiter* waiter = completion.waiter_.exchange(taken(), std::memory_order_acq_rel);
  if (waiter != nullptr && waiter != taken()) {
    // Before the state changes: once it is done the waiter may see it, and be gone, at any time.
    Waiter*& first = first_[count_++ % chains_];
    waiter->next_to_wake = std::exchange(first, waiter);
    waiter->ends_chain = gathers_ && waiter->next_to_wake == nullptr;
  }
  if ((completion.state_.exchange(Completion::kDone, std::memory_order_acq_rel) & Completion::kCrowd) != 0) {
    wake_all(completion.state_);
  }
}

Waiter* WakeChain::take_only() {
  if (count_ != 1) return nullptr;
  count_ = 0;
  return first_[0];
}

void WakeChain::wake() {
  const std::size_t published = std::exchange(count_, 0);
  for (std::size_t i = 1; i <= std::min(published, chains_); ++i) first_[(published - i) % chains_]->parker.unpark();
}

}  // namespace service_streamer
