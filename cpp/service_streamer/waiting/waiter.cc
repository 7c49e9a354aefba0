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

// The queue of WakeChain. A forked child starts with an empty one: the threads in it are the parent's.
class WakeQueue {
 public:
  // Queues the waiter and sets the state, in one step: a woken thread finds that it is done, and a thread that sees that it is
  // done finds itself in the queue. Returns the state before.
  std::uint32_t push(Waiter& waiter, std::atomic<std::uint32_t>& state, std::uint32_t done) EXCLUDES(mutex_) {
    const ForkLock no_fork;
    MutexLock lock(mutex_);
    forget_those_of_parent();
    waiter.turn = Waiter::Turn::kQueued;
    waiter.next = nullptr;
    waiter.previous = std::exchange(last_, &waiter);
    (waiter.previous != nullptr ? waiter.previous->next : first_) = &waiter;
    return state.exchange(done, std::memory_order_acq_rel);
  }

  // The next thread to be woken, or nullptr: nothing waits, or enough threads are awake.
  Waiter* pop() EXCLUDES(mutex_) {
    const ForkLock no_fork;
    MutexLock lock(mutex_);
    forget_those_of_parent();
    return take_first();
  }

  // Takes a thread out, queued or awake. Returns what pop() does. The caller has the GIL or a ForkLock.
  Waiter* leave(Waiter& waiter) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    forget_those_of_parent();
    const Waiter::Turn turn = std::exchange(waiter.turn, Waiter::Turn::kNone);
    if (turn == Waiter::Turn::kNone) return nullptr;
    turn == Waiter::Turn::kQueued ? take_out(waiter) : static_cast<void>(--awake_);
    return take_first();
  }

 private:
  // One wakes up while another has the GIL. Many would exceed the 5 ms after which CPython lets a waiting thread ask for the
  // GIL again, behind all others.
  static constexpr int kMostAwake = 4;

  void take_out(Waiter& waiter) REQUIRES(mutex_) {
    (waiter.previous != nullptr ? waiter.previous->next : first_) = waiter.next;
    (waiter.next != nullptr ? waiter.next->previous : last_) = waiter.previous;
  }

  Waiter* take_first() REQUIRES(mutex_) {
    if (first_ == nullptr || awake_ == kMostAwake) return nullptr;
    Waiter& waiter = *first_;
    take_out(waiter);
    waiter.turn = Waiter::Turn::kAwake;
    ++awake_;
    return &waiter;
  }

  void forget_those_of_parent() REQUIRES(mutex_) {
    if (generation_ == ForkLock::generation()) return;
    generation_ = ForkLock::generation();
    first_ = last_ = nullptr;
    awake_ = 0;
  }

  Mutex mutex_;
  Waiter* first_ GUARDED_BY(mutex_) = nullptr;
  Waiter* last_ GUARDED_BY(mutex_) = nullptr;
  int awake_ GUARDED_BY(mutex_) = 0;
  std::uint32_t generation_ GUARDED_BY(mutex_) = ForkLock::generation();
};

WakeQueue& wake_queue() {
  static WakeQueue* queue = new WakeQueue;  // leaked, as the free list
  return *queue;
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
  WakeChain::leave(waiter);
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

void Completion::finish() {
  waiter_.store(taken(), std::memory_order_relaxed);
  state_.store(kDone, std::memory_order_release);
}

Completion::Wait Completion::wait(Waiter& waiter, TimePoint deadline, bool entered) {
  if (!entered && done()) return Wait::kDone;
  if (!entered && !enter(waiter)) return wait_in_crowd(deadline);
  for (;;) {
    const Parker::Wake wake = waiter.parker.park(deadline);
    if (done()) break;
    if (wake == Parker::Wake::kUnparked) continue;
    if (leave(waiter)) return wake == Parker::Wake::kTimeout ? Wait::kTimeout : Wait::kInterrupted;
    deadline = TimePoint::max();  // it is being published
  }
  return Wait::kDone;
}

bool Completion::enter(Waiter& waiter) {
  Waiter* nobody = nullptr;
  return waiter_.compare_exchange_strong(nobody, &waiter, std::memory_order_acq_rel);
}

// False: taken by who publishes.
bool Completion::leave(Waiter& waiter) {
  Waiter* self = &waiter;
  return waiter_.compare_exchange_strong(self, nullptr, std::memory_order_acq_rel);
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

void WakeChain::publish(Completion& completion) {
  Waiter* waiter = completion.waiter_.exchange(taken(), std::memory_order_acq_rel);
  const bool sleeps = waiter != nullptr && waiter != taken();
  const std::uint32_t before = sleeps ? wake_queue().push(*waiter, completion.state_, Completion::kDone)
                                      : completion.state_.exchange(Completion::kDone, std::memory_order_acq_rel);
  any_ = any_ || sleeps;
  if ((before & Completion::kCrowd) != 0) wake_all(completion.state_);
}

void WakeChain::wake() {
  if (!std::exchange(any_, false)) return;
  while (Waiter* waiter = wake_queue().pop()) waiter->parker.unpark();
}

void WakeChain::leave(Waiter& waiter) {
  if (Waiter* next = wake_queue().leave(waiter)) next->parker.unpark();
}

}  // namespace service_streamer
