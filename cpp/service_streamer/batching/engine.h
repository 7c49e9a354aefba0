#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "service_streamer/base/clock.h"
#include "service_streamer/base/mutex.h"
#include "service_streamer/batching/batch.h"
#include "service_streamer/batching/batch_cut.h"
#include "service_streamer/batching/batch_policy.h"
#include "service_streamer/batching/options.h"
#include "service_streamer/batching/request.h"
#include "service_streamer/batching/request_queue.h"
#include "service_streamer/batching/stats.h"
#include "service_streamer/waiting/waiter.h"

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

  // Takes the request into the queue. When that is full the request goes to the waiting room with kWaiting, or is refused with
  // kFull (Overflow::kReject). Never blocks. Wakes the worker that should take it.
  Admission submit(Request& request) EXCLUDES(mutex_);

  // The same for a request that another engine has accepted: never kFull.
  Admission submit_accepted(Request& request) EXCLUDES(mutex_);

  // The same for several requests; wakes workers when all of them are there. False: the engine is closed, and took none.
  bool submit_accepted(std::span<Request* const> requests) EXCLUDES(mutex_);

  // Blocks until a request left the waiting room (kDone: into the queue, or it ended), the deadline, or a signal.
  Completion::Wait wait_for_room(Request& request, Waiter& waiter, TimePoint deadline) EXCLUDES(mutex_);

  // Never blocks: whether it has left the waiting room; if not, wakes the waiter when it does.
  bool has_room(Request& request, Waiter& waiter) EXCLUDES(mutex_);

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

  // The same for a worker that is still busy with a batch and can have another one ready: only one that cannot grow any more, for
  // it is full or the engine is closed. Others had better grow until the worker is free.
  Ready poll_ahead(CloseReason& reason) EXCLUDES(mutex_);

  Ready wait_for_batch(Waiter& waiter, CloseReason& reason) EXCLUDES(mutex_);

  // A worker between start_waiting() and stop_waiting(); stays in place meanwhile. Belongs to the engine, under its mutex.
  struct IdleWorker {
    explicit IdleWorker(Waiter& to_wake) : waiter(to_wake) {}

    Waiter& waiter;
    enum class State {
      kAway,
      kIdle,
      kReserved
    } state = State::kAway;              // kReserved: was given a batch; no longer in idle_
    TimePoint until = TimePoint::max();  // wakes by itself
    CloseReason reason = CloseReason::kIdle;
  };

  // The halves of wait_for_batch(), for a thread that waits for many things at once. kNotYet: the worker counts as idle, and
  // this is to be called again when its waiter was woken or at `until`. Otherwise it is no longer waiting.
  Ready start_waiting(IdleWorker& worker, CloseReason& reason, TimePoint& until) EXCLUDES(mutex_);
  // What was promised to it goes to another one.
  void stop_waiting(IdleWorker& worker) EXCLUDES(mutex_);

  // Fills `batch` with what waits now, up to the policy's share of it. Requests whose deadline has passed are ended instead. False:
  // nothing is left (taken by others, cancelled, expired).
  bool cut(Batch& batch, CloseReason reason, EndedRequests& ended) EXCLUDES(mutex_);

  // Instead of cut(): what was promised by kBatch stays, for another worker.
  void decline() EXCLUDES(mutex_);

  // Gives a batch back with what became of it: kAnswered, kFailed or kLost. Parts marked failed or postponed are so.
  void complete(Batch& batch, Outcome outcome, EndedRequests& ended, ReleasedRequests& released) EXCLUDES(mutex_);

  // Moves what is before the cut out of a batch that failed, into `first`, which runs again by itself. The cut must
  // leave items on both sides.
  void split(Batch& batch, const BatchCut& cut, Batch& first) EXCLUDES(mutex_);

  // Moves all of `first`, which split() took from the front of the batch, back there.
  void join(Batch& batch, Batch& first) EXCLUDES(mutex_);

  // Puts the whole requests of a batch that failed back into the queue, and takes their parts out (Request* nullptr).
  // Each of them runs alone, when nothing else waits. After close(false) they end as kClosed.
  void postpone(Batch& batch, EndedRequests& ended, ReleasedRequests& released) EXCLUDES(mutex_);

  // Before such a piece runs: ends the requests in it whose deadline has passed, and takes out (Request* nullptr) the parts of
  // those that ended meanwhile.
  void drop_ended(Batch& batch, EndedRequests& ended, ReleasedRequests& released) EXCLUDES(mutex_);

  // --- a relay, which hands requests on to another engine ---

  // What was promised by kBatch: whole requests, until they have `limit` items; false as cut(). Each comes back by itself.
  bool forward(Batch& batch, std::size_t limit, EndedRequests& ended) EXCLUDES(mutex_);

  // kNone: the other engine did not take it. It waits again, at its old place (the latest of them first, please); once this engine
  // is closed it ends as kClosed.
  struct Returned {
    Request* request = nullptr;
    Outcome outcome = Outcome::kLost;
  };
  void take_back(std::span<const Returned> requests, EndedRequests& ended, ReleasedRequests& released) EXCLUDES(mutex_);

  // --- deadlines ---

  // Blocks until the deadline of an unwatched request may have passed (kBatch: call expire()), the engine is closed and
  // empty (kClosed), or a signal. For one thread at a time; from the first call on, until it says that it comes no more, all
  // deadlines are its.
  Ready wait_for_deadline(Waiter& waiter) EXCLUDES(mutex_);
  void leave_deadlines() EXCLUDES(mutex_);
  void expire(EndedRequests& ended) EXCLUDES(mutex_);

  // Instead of these, for a thread that waits for many things at once: expires, and tells when to be called again, unless the
  // waiter is woken before. Never blocks; looks at all requests only when one of them is due.
  TimePoint watch_deadlines(Waiter& waiter, EndedRequests& ended) EXCLUDES(mutex_);
  void stop_watching(const Waiter& waiter) EXCLUDES(mutex_);

  // --- life ---

  // Throws std::invalid_argument; then nothing has changed.
  void configure(const EngineChange& change) EXCLUDES(mutex_);
  EngineOptions options() const EXCLUDES(mutex_);

  // At least 1. For the policy, which spaces their batches.
  void set_workers(int workers) EXCLUDES(mutex_);

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

  // How many requests were accepted and have not ended; may be old by the time it is known.
  std::uint64_t requests() const { return live_count_.load(std::memory_order_relaxed); }

 private:
  // Who is to be woken once the mutex is released.
  struct Wakes {
    Waiter* worker = nullptr;
    std::vector<Waiter*> others;
    void run();
  };

  Admission accept(Request& request, bool may_wait) EXCLUDES(mutex_);
  Admission admit(Request& request, bool may_wait, Wakes& wakes) REQUIRES(mutex_);
  bool exhausted() const REQUIRES(mutex_);
  bool drained() const REQUIRES(mutex_);
  std::size_t unpromised() const REQUIRES(mutex_);
  bool due(TimePoint now, std::size_t idle_workers, BatchPolicy::Verdict& verdict) REQUIRES(mutex_);
  BatchPolicy::Queue waiting(std::size_t items, std::size_t idle_workers) const REQUIRES(mutex_);
  void leave_idle(IdleWorker& worker) REQUIRES(mutex_);
  Ready look(std::size_t idle_workers, TimePoint now, CloseReason& reason, TimePoint& until) REQUIRES(mutex_);
  TimePoint sleep_until(bool something_waits, TimePoint due, TimePoint now) const REQUIRES(mutex_);
  Waiter* worker_to_wake(TimePoint now) REQUIRES(mutex_);
  void end(Request& request, Outcome outcome, TimePoint now, EndedRequests& ended, Wakes& wakes) REQUIRES(mutex_);
  void end_expired(TimePoint now, EndedRequests& ended, Wakes& wakes) REQUIRES(mutex_);
  TimePoint next_deadline() const REQUIRES(mutex_);
  void fill(Batch& batch, std::size_t limit, bool whole, TimePoint now, EndedRequests& ended, Wakes& wakes)
      REQUIRES(mutex_);
  void put_back(const RequestRange& part, Outcome outcome, TimePoint now, EndedRequests& ended,
                ReleasedRequests& released, Wakes& wakes) REQUIRES(mutex_);
  void queue_again(Request& request, ReleasedRequests& released) REQUIRES(mutex_);
  void queue_alone(const RequestRange& part, TimePoint now, EndedRequests& ended, ReleasedRequests& released,
                   Wakes& wakes) REQUIRES(mutex_);
  void note_completed(const Batch& batch, TimePoint now) REQUIRES(mutex_);
  void settle(TimePoint now, Wakes& wakes) REQUIRES(mutex_);

  // Own synchronisation.
  std::atomic<bool> closed_{false};  // written under mutex_
  DurationHistogram queue_time_;
  DurationHistogram service_time_;
  DurationHistogram delivery_time_;

  mutable Mutex mutex_;
  EngineOptions options_ GUARDED_BY(mutex_);
  BatchPolicy policy_ GUARDED_BY(mutex_);
  RequestQueue queue_ GUARDED_BY(mutex_);
  LiveList live_ GUARDED_BY(mutex_);                       // every request that was accepted and has not ended
  std::atomic<std::uint64_t> live_count_{0};               // written under mutex_
  bool drains_ GUARDED_BY(mutex_) = true;                  // what is queued is served, also after close()
  std::vector<IdleWorker*> idle_ GUARDED_BY(mutex_);       // the most recently idle last
  int reserved_ GUARDED_BY(mutex_) = 0;                    // batches promised to workers and not yet cut
  TimePoint ready_ GUARDED_BY(mutex_) = TimePoint::max();  // since when an item and an idle worker are both there
  int running_batches_ GUARDED_BY(mutex_) = 0;
  std::size_t running_items_ GUARDED_BY(mutex_) = 0;
  Waiter* timer_ GUARDED_BY(mutex_) = nullptr;  // who watches the deadlines, and sleeps until when
  TimePoint timer_until_ GUARDED_BY(mutex_) = TimePoint::max();
  bool has_timer_thread_ GUARDED_BY(mutex_) = false;
  std::vector<Waiter*> drain_waiters_ GUARDED_BY(mutex_);
  Counters counters_ GUARDED_BY(mutex_);
};

}  // namespace service_streamer
