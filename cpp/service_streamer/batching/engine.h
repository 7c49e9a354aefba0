#pragma once

#include <atomic>
#include <vector>

#include "service_streamer/base/clock.h"
#include "service_streamer/base/mutex.h"
#include "service_streamer/batching/batch.h"
#include "service_streamer/batching/batch_policy.h"
#include "service_streamer/batching/options.h"
#include "service_streamer/batching/request.h"
#include "service_streamer/batching/request_queue.h"
#include "service_streamer/batching/stats.h"
#include "service_streamer/batching/waiter.h"

namespace service_streamer {

// Brings requests and workers together: callers submit, workers pull batches, and every request that was accepted is ended
// exactly once.
//
// All methods are thread-safe; those that may block say so and take the waiter to sleep on. The engine has no thread and
// calls nobody: a request that a method ended comes back in an EndedRequests, and its caller stores the result, publishes
// Request::completion through a WakeChain, and drops the hold on it. ReleasedRequests are those that had ended before
// (expired, cancelled) and that the last worker has now let go of: nothing to publish, only to free.
//
// After close() nothing is accepted. What is queued is still served (drain) or ended as kClosed; workers then get kClosed.
class Engine {
 public:
  // Throws std::invalid_argument for options that make no sense.
  explicit Engine(const EngineOptions& options);

  // --- callers ---

  enum class Admission { kQueued, kWaiting, kFull, kClosed };

  // Takes the request into the queue. When that is full it goes to the waiting room with kWaiting, or is refused with kFull
  // (Overflow::kReject). Never blocks. Wakes the worker that should take it; or, given `to_wake`, leaves that to the caller,
  // who first lets go of what the worker will ask for next (the GIL).
  Admission submit(Request& request, Waiter** to_wake = nullptr) EXCLUDES(mutex_);

  // Blocks until a request left the waiting room (kDone: into the queue, or it ended), the deadline, or a signal.
  Completion::Wait wait_for_room(Request& request, Waiter& waiter, TimePoint deadline) EXCLUDES(mutex_);

  // Ends a request before its time. Without `even_if_running` only while some of its items have not gone to a worker.
  // False: it has ended already, or runs.
  bool end_early(Request& request, Outcome outcome, bool even_if_running, EndedRequests& ended) EXCLUDES(mutex_);

  // Whether a worker has any of it.
  bool running(const Request& request) const EXCLUDES(mutex_);

  // --- workers ---

  enum class Ready { kBatch, kNotYet, kClosed, kInterrupted };

  // kBatch: a batch is due and reserved for this worker, which must now call cut(). poll() never blocks;
  // wait_for_batch() blocks until kBatch, kClosed, or a signal handler ran in this thread.
  Ready poll(CloseReason& reason) EXCLUDES(mutex_);
  Ready wait_for_batch(Waiter& waiter, CloseReason& reason) EXCLUDES(mutex_);

  // Fills `batch` with what waits now, up to batch_size items. Requests whose deadline has passed are ended instead. False:
  // nothing is left (taken by others, cancelled, expired).
  bool cut(Batch& batch, CloseReason reason, EndedRequests& ended) EXCLUDES(mutex_);

  // Gives a batch back with what became of it: kAnswered (but for the parts marked failed), kFailed or kLost.
  void complete(Batch& batch, Outcome outcome, EndedRequests& ended, ReleasedRequests& released) EXCLUDES(mutex_);

  // Cuts a batch that failed in two, to be run again one after the other: between requests, or anywhere. False: it cannot
  // be cut further, and is unchanged.
  bool split(Batch& batch, bool between_items, Batch& second) EXCLUDES(mutex_);

  // Before such a piece runs: ends the requests in it whose deadline has passed, and takes out (Request* nullptr) the parts of
  // those that ended meanwhile.
  void drop_ended(Batch& batch, EndedRequests& ended, ReleasedRequests& released) EXCLUDES(mutex_);

  // --- deadlines ---

  // Blocks until the deadline of an unwatched request may have passed (kBatch: call expire()), the engine is closed and
  // empty (kClosed), or a signal. For one thread at a time.
  Ready wait_for_deadline(Waiter& waiter) EXCLUDES(mutex_);
  void expire(EndedRequests& ended) EXCLUDES(mutex_);

  // --- life ---

  // Throws std::invalid_argument; max_queue, workers, overflow and spin keep their first value.
  void configure(const EngineOptions& options) EXCLUDES(mutex_);
  EngineOptions options() const EXCLUDES(mutex_);

  // Idempotent; never blocks. `drain` false ends everything that no worker has yet.
  void close(bool drain, EndedRequests& ended) EXCLUDES(mutex_);
  bool closed() const { return closed_.load(std::memory_order_relaxed); }

  // Ends every request, also what is running: because the engine is closed, or because no worker will come.
  void abort(Outcome outcome, EndedRequests& ended) EXCLUDES(mutex_);

  // Blocks until every request has ended and every batch is back.
  Completion::Wait wait_until_drained(Waiter& waiter, TimePoint deadline) EXCLUDES(mutex_);

  EngineStats stats() const EXCLUDES(mutex_);

  // The caller had the answer now. The one statistic that is not counted under the mutex.
  void delivered(const Request& request, TimePoint now) { delivery_time_.add(now - request.ended); }

  // Seconds until what is queued will have gone, estimated from what the last batches took; before the first, max_latency.
  double retry_after() const EXCLUDES(mutex_);

  // How long a caller or worker should look busily for its wake-up; zero unless the spin option pays right now.
  Duration spin() const { return spin_now_.load(std::memory_order_relaxed) ? kSpin : Duration::zero(); }

 private:
  // Well above the time of a wake-up (30 µs to another core): after one slow round both sides find each other spinning again.
  static constexpr Duration kSpin = std::chrono::microseconds(100);

  // A worker that sleeps in wait_for_batch().
  struct IdleWorker {
    Waiter& waiter;
    TimePoint until = TimePoint::max();  // wakes by itself
    bool reserved = false;               // was given a batch; no longer in idle_
    CloseReason reason = CloseReason::kIdle;
  };

  // Who is to be woken once the mutex is released.
  struct Wakes {
    Waiter* worker = nullptr;
    std::vector<Waiter*> others;
    void run();
  };

  bool exhausted() const REQUIRES(mutex_);
  bool drained() const REQUIRES(mutex_);
  bool due(TimePoint now, std::size_t idle_workers, BatchPolicy::Verdict& verdict) REQUIRES(mutex_);
  void leave_idle(IdleWorker& worker) REQUIRES(mutex_);
  TimePoint sleep_until(bool something_waits, TimePoint due, TimePoint now) const REQUIRES(mutex_);
  Waiter* worker_to_wake(TimePoint now) REQUIRES(mutex_);
  void end(Request& request, Outcome outcome, TimePoint now, EndedRequests& ended, Wakes& wakes) REQUIRES(mutex_);
  void put_back(const BatchPart& part, Outcome outcome, TimePoint now, EndedRequests& ended, ReleasedRequests& released,
                Wakes& wakes) REQUIRES(mutex_);
  void note_completed(const Batch& batch, TimePoint now) REQUIRES(mutex_);
  void settle(TimePoint now, Wakes& wakes) REQUIRES(mutex_);

  // Constant after construction.
  const bool may_spin_;

  // Own synchronisation.
  std::atomic<bool> closed_{false};    // written under mutex_
  std::atomic<bool> spin_now_{false};  // written under mutex_
  DurationHistogram queue_time_;
  DurationHistogram service_time_;
  DurationHistogram delivery_time_;

  mutable Mutex mutex_;
  EngineOptions options_ GUARDED_BY(mutex_);
  BatchPolicy policy_ GUARDED_BY(mutex_);
  RequestQueue queue_ GUARDED_BY(mutex_);
  LiveList live_ GUARDED_BY(mutex_);  // every request that was accepted and has not ended
  std::uint64_t live_count_ GUARDED_BY(mutex_) = 0;
  std::vector<IdleWorker*> idle_ GUARDED_BY(mutex_);       // the most recently idle last
  int reserved_ GUARDED_BY(mutex_) = 0;                    // batches promised to workers and not yet cut
  TimePoint ready_ GUARDED_BY(mutex_) = TimePoint::max();  // since when an item and an idle worker are both there
  int running_batches_ GUARDED_BY(mutex_) = 0;
  std::size_t running_items_ GUARDED_BY(mutex_) = 0;
  Waiter* timer_ GUARDED_BY(mutex_) = nullptr;  // who sleeps in wait_for_deadline(), and until when
  TimePoint timer_until_ GUARDED_BY(mutex_) = TimePoint::max();
  std::vector<Waiter*> drain_waiters_ GUARDED_BY(mutex_);
  Counters counters_ GUARDED_BY(mutex_);
};

}  // namespace service_streamer
