#pragma once

#include <atomic>
#include <cstdint>

#include "service_streamer/base/clock.h"
#include "service_streamer/base/mutex.h"
#include "service_streamer/waiting/parker.h"

namespace service_streamer {

// A place where one thread sleeps. It comes from a WaiterPool and is never freed, so a late wake-up hits valid
// memory. Such a wake-up is spurious for the thread that sleeps there next.
struct Waiter {
  Waiter() = default;
#ifndef SERVICE_STREAMER_PORTABLE
  explicit Waiter(int event) : parker(event) {}
#endif

  Parker parker;
  Waiter* next_free = nullptr;

  // Guarded by the mutex of WakeQueue.
  enum class Turn { kNone, kQueued, kWaking, kAwake, kAfterOthers } turn = Turn::kNone;
  Waiter* previous = nullptr;
  Waiter* next = nullptr;
};

// Hands out waiters. Any thread that holds the GIL or a ForkLock: no forked child must find the pool locked. Its
// waiters are reused and live as long as the process. acquire() throws std::bad_alloc.
class WaiterPool {
 public:
  static Waiter& acquire();
  static void release(Waiter& waiter);

  // The same for a thread that sleeps in epoll or poll, where it watches `event` (see Parker). Any thread, without a
  // lock. A forked child gets no waiter of its parent. Throws std::system_error if the process has no file descriptor
  // left. Only on Linux.
  static Waiter& acquire_with_event(int& event);
  static void release_with_event(Waiter& waiter);
};

// The end of one request. It is published once, and any number of threads may wait for it.
//
// The first thread that waits sleeps on its own waiter, which WakeQueue wakes in turn. Further threads sleep on the
// state word and are woken together. A thread whose deadline passes, or that a signal interrupts, stops waiting. If
// the request is being published at that moment, the thread returns kDone instead.
class Completion {
 public:
  enum class Wait { kDone, kTimeout, kInterrupted };

  // Marks the request as done and wakes no thread. For requests that no thread of this process waits for: in a forked
  // child, or before the request is shared.
  void finish();

  bool done() const { return (state_.load(std::memory_order_acquire) & kDone) != 0; }

  // Registers `waiter` as that of the first thread, without blocking. A thread that does this before its request can
  // end never overtakes threads that were queued earlier. Then it must call wait() with `entered`. Returns false if
  // the request is done or another thread has registered.
  bool enter(Waiter& waiter);

  // Blocks until the request is published, the deadline passes, or a signal handler ran in this thread. Any thread,
  // each with its own `waiter`. A thread that WakeQueue has woken wakes the next one before this returns.
  Wait wait(Waiter& waiter, TimePoint deadline, bool entered = false) {
    return wait_by(waiter, deadline, entered, [&](TimePoint until) { return waiter.parker.park(until); });
  }

  // The same, but the first thread sleeps by `sleep(until)`, which ends as Parker::park() does.
  template <typename Sleep>
  Wait wait_by(Waiter& waiter, TimePoint deadline, bool entered, Sleep sleep);

 private:
  friend class WakeQueue;
  enum : std::uint32_t { kPending = 0, kDone = 1, kCrowd = 2 };

  bool withdraw(Waiter& waiter);
  Wait wait_in_crowd(TimePoint deadline);

  std::atomic<std::uint32_t> state_{kPending};
  std::atomic<Waiter*> waiter_{nullptr};  // of the first thread that waits, or taken()
};

// Publishes the ends of requests and wakes the threads that wait for them, first in, first out.
//
// There is one queue for all batches of the process, and one baton. wake() gives the baton to the first thread in the
// queue and wakes it, unless a thread has the baton. A woken thread first passes the baton to the next one, which
// Completion::wait() does. So one thread at a time is being woken. A woken thread counts as awake until it calls
// leave() or returns its waiter to the WaiterPool. It does so once it has what it needs to continue (in Python the
// GIL). There may be two batons. Once 16 threads are awake, no thread is woken until only one of them is left: the
// thread that leaves then wakes the next one. Decisions 003, 062 and 070 say why.
//
// Any thread may publish and wake. No call blocks for long.
class WakeQueue {
 public:
  // The queue of this process. After a fork the child's queue is empty.
  static WakeQueue& instance();

  // Marks the request as done. The first thread that waits for it joins the queue, and wake() or a thread that leaves
  // wakes it. Threads beyond the first are woken at once.
  void publish(Completion& completion) EXCLUDES(mutex_);

  // Wakes the first queued thread, unless another one has the baton or 16 are awake. To be called after a batch of
  // publish(). `batons`: 2 for answers of a fast model, or of one that is not known. They come so often that the GIL
  // should never wait for a thread that is being woken.
  void wake(int batons = 1) EXCLUDES(mutex_);

  // Called by the thread of `waiter` when it wakes up: from now on it is awake. Passes the baton if it has that.
  void pass(Waiter& waiter) EXCLUDES(mutex_);

  // Wakes the waiter once threads that are queued now have been woken: all of them (kAll), or only those that are woken
  // before the first of them has left (kFirst), which takes no longer than to wake 16 threads. For a thread that has
  // more to do after the queued ones. It gets no baton and does not count as awake, so it may use the waiter for any
  // wait. The wake-up may be spurious, as those of Parker.
  enum class Others { kFirst, kAll };
  void wake_after(Others others, Waiter& waiter) EXCLUDES(mutex_);

  // Takes the waiter out of the queue, whether it is queued or awake. Wakes the next thread, unless another one has the
  // baton. Does nothing if the waiter is in neither state. The calling thread holds the GIL or a ForkLock.
  void leave(Waiter& waiter) EXCLUDES(mutex_);

 private:
  enum class Caller { kAny, kLocked };  // kLocked: the thread holds the GIL or a ForkLock

  WakeQueue();

  std::uint32_t push(Waiter& waiter, std::atomic<std::uint32_t>& state) EXCLUDES(mutex_);
  void insert(Waiter& waiter, Waiter::Turn turn, Waiter* before = nullptr) REQUIRES(mutex_);
  bool remove(Waiter& waiter) REQUIRES(mutex_);
  void erase(Waiter& waiter) REQUIRES(mutex_);
  template <typename Step>
  void wake_next(Caller caller, Step step) EXCLUDES(mutex_);
  Waiter* pop(int batons) REQUIRES(mutex_);
  void reset_after_fork() REQUIRES(mutex_);

  Mutex mutex_;
  Waiter* first_ GUARDED_BY(mutex_) = nullptr;
  Waiter* last_ GUARDED_BY(mutex_) = nullptr;
  int awake_ GUARDED_BY(mutex_) = 0;
  bool full_ GUARDED_BY(mutex_) = false;  // 16 threads were awake, and more than one still is
  int waking_ GUARDED_BY(mutex_) = 0;     // batons: threads that were woken and have not passed theirs
  std::uint32_t generation_ GUARDED_BY(mutex_);
};

template <typename Sleep>
Completion::Wait Completion::wait_by(Waiter& waiter, TimePoint deadline, bool entered, Sleep sleep) {
  if (!entered && done()) return Wait::kDone;
  if (!entered && !enter(waiter)) return wait_in_crowd(deadline);
  for (;;) {
    const Parker::Wake wake = sleep(deadline);
    if (done()) break;
    if (wake == Parker::Wake::kUnparked) continue;
    if (withdraw(waiter)) return wake == Parker::Wake::kTimeout ? Wait::kTimeout : Wait::kInterrupted;
    deadline = TimePoint::max();  // the request is being published, and the wake-up is on its way
  }
  WakeQueue::instance().pass(waiter);
  return Wait::kDone;
}

}  // namespace service_streamer
