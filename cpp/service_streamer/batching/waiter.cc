#include "service_streamer/batching/waiter.h"

#include <sys/eventfd.h>

#include <atomic>
#include <cerrno>
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
  EventWaiter* next_spare = nullptr;
};

// A stack without a lock, so that no forked child can find it locked: popped as a whole, so there is no ABA.
std::atomic<EventWaiter*> spare_event_waiters{nullptr};

void keep_spare(EventWaiter& waiter) {
  waiter.next_spare = spare_event_waiters.load(std::memory_order_relaxed);
  while (!spare_event_waiters.compare_exchange_weak(waiter.next_spare, &waiter, std::memory_order_release)) {
  }
}

// Stands in Completion::waiter_ once nobody may register there any more.
Waiter* taken() {
  static Waiter sentinel;
  return &sentinel;
}

void wake_next(Waiter& waiter) {
  if (Waiter* next = std::exchange(waiter.next_to_wake, nullptr)) next->parker.unpark();
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

Waiter& WaiterPool::acquire_for_epoll(int& event) {
  EventWaiter* found = nullptr;
  for (EventWaiter *spare = spare_event_waiters.exchange(nullptr, std::memory_order_acquire), *next = nullptr;
       spare != nullptr; spare = next) {
    next = spare->next_spare;
    if (spare->generation != ForkLock::generation()) continue;  // of the parent: its descriptor is not ours
    if (found == nullptr) {
      found = spare;
    } else {
      keep_spare(*spare);
    }
  }
  if (found == nullptr) {
    const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
    found = new EventWaiter(fd);
  }
  event = found->event;
  return *found;
}

void WaiterPool::release_for_epoll(Waiter& waiter) {
  keep_spare(static_cast<EventWaiter&>(waiter));
}

Completion::Wait Completion::wait(Waiter& waiter, TimePoint deadline, Duration spin) {
  if (done()) return Wait::kDone;
  Waiter* nobody = nullptr;
  if (!waiter_.compare_exchange_strong(nobody, &waiter, std::memory_order_acq_rel)) return wait_in_crowd(deadline);
  for (;;) {
    const Parker::Wake wake = waiter.parker.park(deadline, spin);
    if (done()) break;
    if (wake == Parker::Wake::kUnparked) continue;
    Waiter* self = &waiter;
    if (waiter_.compare_exchange_strong(self, nullptr, std::memory_order_acq_rel)) {
      return wake == Parker::Wake::kTimeout ? Wait::kTimeout : Wait::kInterrupted;
    }
    deadline = TimePoint::max();  // taken into a chain: the wake-up is on its way
  }
  wake_next(waiter);
  return Wait::kDone;
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

void WakeChain::wake() {
  const std::size_t published = std::exchange(count_, 0);
  for (std::size_t i = 1; i <= std::min(published, chains_); ++i) first_[(published - i) % chains_]->parker.unpark();
}

}  // namespace service_streamer
