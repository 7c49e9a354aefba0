#include "service_streamer/waiting/waiter.h"

#include <atomic>
#include <cstddef>
#include <new>
#include <optional>
#include <utility>

#include "service_streamer/base/file_descriptor.h"

namespace service_streamer {
namespace {

struct FreeList {
  Mutex mutex;
  Waiter* first GUARDED_BY(mutex) = nullptr;
  std::uint32_t generation GUARDED_BY(mutex) = 0;
};

FreeList& free_list() {
  static FreeList* list = new FreeList;  // leaked: threads may return waiters while the process exits
  return *list;
}

// The value of Completion::waiter_ from the end of the request on: no thread may register any more.
Waiter* taken() {
  alignas(Waiter) static std::byte sentinel[sizeof(Waiter)];  // only its address is used
  return reinterpret_cast<Waiter*>(sentinel);
}

// For WakeQueue: how many threads may be awake, and how many are left when it wakes threads again.
constexpr int kMaxAwake = 16;
constexpr int kFewAwake = 1;

}  // namespace

Waiter& WaiterPool::acquire() {
  FreeList& list = free_list();
  {
    MutexLock lock(list.mutex);
    if (!Parker::kSurvivesFork && list.generation != ForkLock::generation()) {
      list.generation = ForkLock::generation();
      list.first = nullptr;
    }
    if (Waiter* waiter = list.first) {
      list.first = waiter->next_free;
      return *waiter;
    }
  }
  return *new Waiter;
}

void WaiterPool::release(Waiter& waiter) {
  // First: once it is in the list, another thread may take the waiter, and its turn must be its own.
  WakeQueue::instance().leave(waiter);
  FreeList& list = free_list();
  MutexLock lock(list.mutex);
  waiter.next_free = list.first;
  list.first = &waiter;
}

void Completion::finish() {
  // Before the state: a thread that does not see kDone yet must not register any more.
  waiter_.store(taken(), std::memory_order_relaxed);
  state_.store(kDone, std::memory_order_release);
}

bool Completion::enter(Waiter& waiter) {
  Waiter* none = nullptr;
  return waiter_.compare_exchange_strong(none, &waiter, std::memory_order_acq_rel);
}

// False if the request is already being published.
bool Completion::withdraw(Waiter& waiter) {
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

// --- WakeQueue ---

WakeQueue::WakeQueue() : generation_(ForkLock::generation()) {}

WakeQueue& WakeQueue::instance() {
  // Never destroyed, as the free list is; in static memory, because a request must end where no memory is left, too.
  alignas(WakeQueue) static std::byte memory[sizeof(WakeQueue)];
  static auto* queue = new (memory) WakeQueue;
  return *queue;
}

void WakeQueue::publish(Completion& completion) {
  // Of this exchange and withdraw() one comes first: a thread whose waiter is taken here waits until it is woken.
  Waiter* waiter = completion.waiter_.exchange(taken(), std::memory_order_acq_rel);
  const std::uint32_t before = waiter != nullptr && waiter != taken()
                                   ? push(*waiter, completion.state_)
                                   : completion.state_.exchange(Completion::kDone, std::memory_order_acq_rel);
  if ((before & Completion::kCrowd) != 0) wake_all(completion.state_);
}

void WakeQueue::wake(int batons) {
  wake_next(Caller::kAny, [batons] { return batons; });
}

void WakeQueue::pass(Waiter& waiter) {
  wake_next(Caller::kAny, [&]() REQUIRES(mutex_) {
    if (waiter.turn == Waiter::Turn::kWaking) {
      waiter.turn = Waiter::Turn::kAwake;
      return waking_--;  // its own baton, beside that of another thread
    }
    if (waiter.turn == Waiter::Turn::kQueued) {  // it woke up before its turn
      erase(waiter);
      waiter.turn = Waiter::Turn::kAwake;
      ++awake_;
    }
    return 1;
  });
}

void WakeQueue::wake_after(Others others, Waiter& waiter) {
  wake_next(Caller::kAny, [&]() REQUIRES(mutex_) {
    if (waiter.turn != Waiter::Turn::kNone) return 1;
    Waiter* before = nullptr;
    if (others == Others::kFirst) {
      before = first_;
      for (int room = full_ ? 0 : kMaxAwake - awake_; before != nullptr && room > 0; --room) before = before->next;
    }
    insert(waiter, Waiter::Turn::kAfterOthers, before);
    return 1;
  });
}

void WakeQueue::leave(Waiter& waiter) {
  wake_next(Caller::kLocked, [&]() REQUIRES(mutex_) { return remove(waiter) ? 1 : 0; });
}

// Does the step, which returns how many batons there may be, and wakes threads up to this number.
template <typename Step>
void WakeQueue::wake_next(Caller caller, Step step) {
  int batons = -1;
  for (bool more = true; more;) {
    Waiter* next = nullptr;
    {
      std::optional<ForkLock> no_fork;
      if (caller == Caller::kAny) no_fork.emplace();
      MutexLock lock(mutex_);
      reset_after_fork();
      if (batons < 0) batons = step();
      next = pop(batons);
      more = next != nullptr && waking_ < batons;
    }
    if (next != nullptr) next->parker.unpark();  // without the locks, which the woken thread takes first
  }
}

// Queues the waiter and marks its request as done under one lock. So a thread that sees the request done is in the
// queue, and leave() finds it there. Returns the previous state.
std::uint32_t WakeQueue::push(Waiter& waiter, std::atomic<std::uint32_t>& state) {
  const ForkLock no_fork;
  MutexLock lock(mutex_);
  reset_after_fork();
  remove(waiter);  // from an earlier wait, if its thread did not leave
  insert(waiter, Waiter::Turn::kQueued);
  return state.exchange(Completion::kDone, std::memory_order_acq_rel);
}

// nullptr: as the last one.
void WakeQueue::insert(Waiter& waiter, Waiter::Turn turn, Waiter* before) {
  waiter.turn = turn;
  waiter.next = before;
  waiter.previous = std::exchange(before != nullptr ? before->previous : last_, &waiter);
  (waiter.previous != nullptr ? waiter.previous->next : first_) = &waiter;
}

// False if the waiter was neither queued nor awake.
bool WakeQueue::remove(Waiter& waiter) {
  const Waiter::Turn turn = std::exchange(waiter.turn, Waiter::Turn::kNone);
  if (turn == Waiter::Turn::kQueued || turn == Waiter::Turn::kAfterOthers) erase(waiter);
  if (turn == Waiter::Turn::kWaking) --waking_;
  if (turn == Waiter::Turn::kWaking || turn == Waiter::Turn::kAwake) --awake_;
  return turn != Waiter::Turn::kNone;
}

void WakeQueue::erase(Waiter& waiter) {
  (waiter.previous != nullptr ? waiter.previous->next : first_) = waiter.next;
  (waiter.next != nullptr ? waiter.next->previous : last_) = waiter.previous;
}

// The next thread to wake. nullptr if all batons are in use, no thread is queued, or enough threads are awake.
Waiter* WakeQueue::pop(int batons) {
  if (first_ == nullptr || waking_ >= batons) return nullptr;
  Waiter& waiter = *first_;
  if (waiter.turn == Waiter::Turn::kAfterOthers) {
    remove(waiter);
    return &waiter;
  }
  full_ = awake_ >= kMaxAwake || (full_ && awake_ > kFewAwake);
  if (full_) return nullptr;
  erase(waiter);
  waiter.turn = Waiter::Turn::kWaking;
  ++awake_;
  ++waking_;
  return &waiter;
}

// The threads that were queued or awake at the fork do not exist in the child.
void WakeQueue::reset_after_fork() {
  if (generation_ == ForkLock::generation()) return;
  generation_ = ForkLock::generation();
  // A worker's waiter may be queued after its thread has left it to the pool, where the child finds it.
  for (Waiter* each = first_; each != nullptr; each = each->next) each->turn = Waiter::Turn::kNone;
  first_ = last_ = nullptr;
  awake_ = 0;
  full_ = false;
  waking_ = 0;
}

}  // namespace service_streamer
