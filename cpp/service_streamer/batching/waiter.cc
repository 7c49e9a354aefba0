#include "service_streamer/batching/waiter.h"

#include <algorithm>
#include <utility>

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

WakeChain::WakeChain(std::size_t completions) : chained_(completions > kWakeAllUpTo) {}

void WakeChain::publish(Completion& completion) {
  Waiter* waiter = completion.waiter_.exchange(taken(), std::memory_order_acq_rel);
  if (waiter != nullptr && waiter != taken()) {
    // Before the state changes: once it is done the waiter may see it, and be gone, at any time.
    waiter->next_to_wake = chained_ && count_ > 0 ? waiters_[0] : nullptr;
    waiters_[chained_ ? 0 : count_] = waiter;
    ++count_;
  }
  if ((completion.state_.exchange(Completion::kDone, std::memory_order_acq_rel) & Completion::kCrowd) != 0) {
    wake_all(completion.state_);
  }
}

void WakeChain::wake() {
  std::size_t left = chained_ ? std::min<std::size_t>(count_, 1) : count_;
  count_ = 0;
  while (left > 0) waiters_[--left]->parker.unpark();
}

}  // namespace service_streamer
