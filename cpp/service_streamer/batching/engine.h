#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "service_streamer/base/clock.h"
#include "service_streamer/base/mutex.h"
#include "service_streamer/batching/batch.h"
#include "service_streamer/batching/batch_cut.h"
#include "service_streamer/batching/batch_limits.h"
#include "service_streamer/batching/batch_policy.h"
#include "service_streamer/batching/bucket_policy.h"
#include "service_streamer/batching/deadline_timer.h"
#include "service_streamer/batching/idle_worker.h"
#include "service_streamer/batching/isolation.h"
#include "service_streamer/batching/memory_ceiling.h"
#include "service_streamer/batching/options.h"
#include "service_streamer/batching/recent_stats.h"
#include "service_streamer/batching/recorder.h"
#include "service_streamer/batching/request.h"
#include "service_streamer/batching/request_queue.h"
#include "service_streamer/batching/slo_policy.h"
#include "service_streamer/batching/stats.h"
#include "service_streamer/waiting/waiter.h"

namespace service_streamer {

// Brings requests and workers together. Callers submit requests, workers pull batches, and every accepted request
// ends exactly once.
//
// All methods are thread-safe. A method that may block says so and takes the waiter to sleep on. The engine has no
// thread and makes no callbacks. A method that ends requests returns them in an EndedRequests: its caller stores the
// results, publishes Request::completion through the WakeQueue, and drops the engine's hold. ReleasedRequests are
// requests that ended and were published before (expired, cancelled) and whose last hold the method has dropped: its
// caller frees them.
//
// After close() no request is accepted. Queued ones are served (drain) or end as kClosed; then workers get kClosed.
class Engine {
 public:
  // Throws std::invalid_argument if an option is invalid.
  explicit Engine(const EngineOptions& options, TenantShares tenants = {});

  // --- callers ---
  enum class Admission { kQueued, kWaiting, kFull, kTenantFull, kWeightFull, kClosed };

  // Puts the request into the queue, and wakes a worker if a batch is now due. If there is no room, the request goes to
  // the waiting room (kWaiting), or with Overflow::kReject is refused (kTenantFull: by the bound of its tenant,
  // kWeightFull: by that of the weight). A request that would miss the target is refused too (kFull). Never blocks.
  //
  // With `later`, the calling thread soon wakes the worker, by later->run(): it first releases what the worker needs.
  Admission submit(Request& request, WorkerWake* later = nullptr) EXCLUDES(mutex_);

  // The same for a request that another engine has accepted: it is refused only if there is a target.
  Admission submit_accepted(Request& request) EXCLUDES(mutex_);

  // The same for several requests. Those that would miss the target end as kRefused, those for which there is no memory
  // as kLost. Returns false if the engine is closed. Then, and if it throws std::bad_alloc, it took none.
  bool submit_accepted(std::span<Request* const> requests, EndedRequests& ended) EXCLUDES(mutex_);

  // Ends queued requests that can no longer be in time. Called after a request was refused.
  void end_hopeless(EndedRequests& ended) EXCLUDES(mutex_);

  // Blocks until the request leaves the waiting room (kDone: it is in the queue or has ended), the deadline passes,
  // or a signal handler ran in this thread.
  Completion::Wait wait_for_room(Request& request, Waiter& waiter, TimePoint deadline) EXCLUDES(mutex_);

  // Returns true if the request has left the waiting room. Otherwise the waiter is woken when it does. Never blocks.
  bool has_room(Request& request, Waiter& waiter) EXCLUDES(mutex_);

  // Ends a request as expired, cancelled or lost. Without `even_if_running`, only while some items are not in a batch
  // yet. Returns false if the request has already ended, or runs.
  bool end_early(Request& request, Outcome outcome, bool even_if_running, EndedRequests& ended) EXCLUDES(mutex_);

  // True if an item of the request is in a batch and the request has not ended.
  bool running(const Request& request) const EXCLUDES(mutex_);

  // How the request has ended, also before that is published.
  Outcome outcome(const Request& request) const EXCLUDES(mutex_);

  // --- workers ---
  enum class Ready { kBatch, kNotYet, kClosed, kInterrupted };

  // kBatch means that a batch is due and reserved for this worker. The worker must now call cut(), forward() or
  // decline(). poll() never blocks. wait_for_batch() blocks until kBatch, kClosed, or a signal handler ran in this
  // thread.
  //
  // `live` is for a worker that takes further batches before the earlier ones are back. The limit of the weight holds
  // for these batches together with the next one. The request that goes first waits for room, and the others behind it.
  Ready poll(CloseReason& reason, const ItemWeights& live = {}) EXCLUDES(mutex_);

  // The same for a worker that is still busy and can have its next batch ready. Reserves only a batch that cannot
  // grow any more, because it is full or the engine is closed. Reserves none for 10 s after a request of a higher
  // priority than all queued ones arrived: the next one of it would wait for two batches. Never blocks.
  Ready poll_ahead(CloseReason& reason) EXCLUDES(mutex_);

  // `end` has what else ends the wait, with kNotYet.
  Ready wait_for_batch(Waiter& waiter, CloseReason& reason, const WaitEnd& end = {}, const ItemWeights& live = {})
      EXCLUDES(mutex_);

  // A worker that waits by start_waiting(). It must not move before it has a batch or kClosed, or calls stop_waiting().
  using IdleWorker = service_streamer::IdleWorker;

  // The two halves of wait_for_batch(), for a thread that also waits for other events. Neither blocks. kNotYet means
  // that the worker is idle: call start_waiting() again at `until`, when its waiter was woken, or when it has less
  // `live`. With any other result the worker no longer waits.
  Ready start_waiting(IdleWorker& worker, CloseReason& reason, TimePoint& until, const ItemWeights& live = {})
      EXCLUDES(mutex_);
  // Ends the wait. A batch that is reserved for the worker goes to another one.
  void stop_waiting(IdleWorker& worker) EXCLUDES(mutex_);
  // Makes each thread in wait_for_batch() look at WaitEnd::rung again.
  void wake_idle() EXCLUDES(mutex_);

  // Fills `batch` with the items that are queued now, up to the limit of the policy, and of the memory of the worker at
  // this place. Ends requests whose deadline has
  // passed. Returns false if no item is left, because other workers took them, or they were cancelled or expired; or
  // if there is no room for the request that goes first now.
  bool cut(Batch& batch, CloseReason reason, EndedRequests& ended, const ItemWeights& live = {},
           std::uint32_t place = 0) EXCLUDES(mutex_);

  // There are workers at this place and those below. Each place has its own memory, and place 0 always exists. Throws
  // std::bad_alloc.
  void add_place(std::uint32_t place) EXCLUDES(mutex_);

  // Tells what the runs of a batch that was isolated have shown about the memory of its worker.
  void learn(const BatchSize& whole, const MemoryLesson& lesson) EXCLUDES(mutex_);

  // Called instead of cut(): gives up the reservation, and the items stay for another worker.
  void decline() EXCLUDES(mutex_);

  // Gives a batch back. `outcome` is kAnswered, kFailed or kLost; ranges that are marked as failed or postponed are
  // treated so.
  void complete(Batch& batch, Outcome outcome, EndedRequests& ended, ReleasedRequests& released) EXCLUDES(mutex_);

  // Cuts a failed batch in two: moves the items before the cut into `first`, a batch that is run again by itself.
  // There must be items on both sides of the cut.
  void split(Batch& batch, const BatchCut& cut, Batch& first) EXCLUDES(mutex_);

  // Undoes split(): moves all of `first` back to the front of the batch.
  void join(Batch& batch, Batch& first) EXCLUDES(mutex_);

  // Puts the whole requests of a failed batch back into the queue. Each then runs alone, when no other request is
  // queued. After close(false) they end as kClosed. Sets RequestRange::request of their ranges to nullptr; the caller
  // erases these ranges.
  void postpone(Batch& batch, EndedRequests& ended, ReleasedRequests& released) EXCLUDES(mutex_);

  // Called before a part of a failed batch runs again. Ends its requests whose deadline has passed. Sets
  // RequestRange::request of requests that have ended to nullptr; the caller erases these ranges.
  void drop_ended(Batch& batch, EndedRequests& ended, ReleasedRequests& released) EXCLUDES(mutex_);

  // --- forwarding requests to another engine ---
  // Called instead of cut(): fills `batch` with whole requests, until they have at least `limit` items. Returns false
  // as cut() does. Each request is given back by itself, through take_back().
  bool forward(Batch& batch, std::size_t limit, EndedRequests& ended) EXCLUDES(mutex_);

  // From now on, requests below that priority are not due and not forwarded. It is for an engine without `ageing`.
  void hold_back_below(std::int64_t priority) EXCLUDES(mutex_);
  // A forwarded request that is given back. kNone means that the other engine did not take it. It is then queued again
  // at its old place, or ends as kClosed if this engine is closed. Of several such requests, pass the latest first.
  struct Returned {
    Request* request = nullptr;
    Outcome outcome = Outcome::kLost;
  };
  void take_back(std::span<const Returned> requests, EndedRequests& ended, ReleasedRequests& released) EXCLUDES(mutex_);

  // --- deadlines ---
  // The thread that watches them uses this.
  DeadlineTimer& deadline_timer() { return deadline_timer_; }

  // Ends the requests that arrived before `time`, also those that run. Returns when the oldest of the others arrived.
  TimePoint expire_arrived_before(TimePoint time, EndedRequests& ended) EXCLUDES(mutex_);

  // --- life ---
  // Throws std::invalid_argument if an option would be invalid, and then changes nothing.
  void configure(const EngineChange& change) EXCLUDES(mutex_);
  EngineOptions options() const EXCLUDES(mutex_);

  // Tells the policy the number of workers, at least 1. Throws as configure().
  void set_workers(int workers) EXCLUDES(mutex_);

  // Refuses new requests from now on. Without `drain`, ends all requests of which some items are not in a batch yet.
  // Idempotent; never blocks.
  void close(bool drain, EndedRequests& ended) EXCLUDES(mutex_);
  bool closed() const { return closed_.load(std::memory_order_relaxed); }

  // Ends every request, also those that run: as kClosed, or as kLost if there will be no worker.
  void abort(Outcome outcome, EndedRequests& ended) EXCLUDES(mutex_);

  // Blocks until all requests have ended and all batches are back, the deadline passes, or a signal handler ran in
  // this thread.
  Completion::Wait wait_until_drained(Waiter& waiter, TimePoint deadline) EXCLUDES(mutex_);

  EngineStats stats(TimePoint now = Clock::now()) const EXCLUDES(mutex_);  // `now` is only for tests

  // Notes that the caller has its result now. Takes the lock only if no other event of the same second came before.
  void delivered(const Request& request, TimePoint now) EXCLUDES(mutex_);

  // Notes that the result leaves now for the process that sent the request. Locks as delivered() does.
  void replied(const Request& request, TimePoint now) EXCLUDES(mutex_);

  // The estimated seconds until a refused request would be in a batch; max_latency before the first batch.
  double retry_after(const Request& refused) const EXCLUDES(mutex_);

  // False if there is no share for the tenant of the request.
  bool knows_tenant(const Request& request) const { return tenants_.of(request.tenant()).has_value(); }

  // True if a batch takes less than half a millisecond on average.
  bool answers_fast() const { return answers_fast_.load(std::memory_order_relaxed); }

  // The number of accepted requests that have not ended. May be outdated when it returns.
  std::uint64_t requests() const { return live_count_.load(std::memory_order_relaxed); }

  // --- recording ---
  Recorder& recorder() { return recorder_; }

 private:
  friend class DeadlineTimer;  // it decides when end_late() is called, and by which thread

  // Admission.
  Admission accept(Request& request, bool may_wait, WorkerWake* later) EXCLUDES(mutex_);
  void weigh(Request& request) const;
  Admission admit(Request& request, bool may_wait, Wakes& wakes) REQUIRES(mutex_);

  // When a batch is due, and for which worker.
  Ready reserve_if_due(std::size_t idle_workers, const ItemWeights& live, CloseReason& reason, TimePoint& until)
      REQUIRES(mutex_);
  bool due(TimePoint now, std::size_t idle_workers, BatchPolicy::Verdict& verdict) REQUIRES(mutex_);
  std::size_t unreserved_items() const REQUIRES(mutex_);
  bool has_room(const ItemWeights& live, const Request& first) const REQUIRES(mutex_);
  BatchPolicy::Queue policy_queue(const RequestQueue::Company& company, std::size_t idle_workers) const
      REQUIRES(mutex_);
  TimePoint sleep_until(bool something_waits, TimePoint due, TimePoint now) const REQUIRES(mutex_);
  WorkerWake worker_to_wake(TimePoint now) REQUIRES(mutex_);
  std::optional<WakeQueue::Others> callers_before(const IdleWorker& worker) const REQUIRES(mutex_);
  void leave_idle(IdleWorker& worker) REQUIRES(mutex_);

  // Which requests are in a batch.
  Request* first_live(CloseReason reason, TimePoint now, EndedRequests& ended, Wakes& wakes) REQUIRES(mutex_);
  Request* first_of_full_batch(TimePoint now) REQUIRES(mutex_);
  Request* first_ahead_of(const Request& front, TimePoint now) REQUIRES(mutex_);
  bool overdue(const Request& request, TimePoint now) const REQUIRES(mutex_);
  std::size_t share_of(const Request& first, std::size_t idle_workers) REQUIRES(mutex_);
  BucketPolicy::Plan plan_for(const Request& first, const BatchLimits& limits) REQUIRES(mutex_);
  bool alike_left(const Batch& batch) const REQUIRES(mutex_);
  struct Fill {
    Request* first = nullptr;
    BatchLimits limits = {};
    bool whole = false;  // no request is cut, and the last one may exceed the limit
  };
  bool fill(Batch& batch, const Fill& how, TimePoint now, EndedRequests& ended, Wakes& wakes) REQUIRES(mutex_);

  // Batches that are back.
  void note_completed(const Batch& batch, TimePoint now) REQUIRES(mutex_);
  void note_memory(const Batch& batch, Outcome outcome) REQUIRES(mutex_);
  double most_without_ceiling() const REQUIRES(mutex_);
  std::size_t places() const REQUIRES(mutex_);
  BatchLimits largest_limits() const REQUIRES(mutex_);
  void put_back(const RequestRange& range, Outcome outcome, TimePoint now, EndedRequests& ended,
                ReleasedRequests& released, Wakes& wakes) REQUIRES(mutex_);
  void queue_alone(const RequestRange& range, TimePoint now, EndedRequests& ended, ReleasedRequests& released,
                   Wakes& wakes) REQUIRES(mutex_);
  void queue_again(Request& request, ReleasedRequests& released) REQUIRES(mutex_);

  // The target.
  bool misses_target(SloPolicy& slo, Request& request) REQUIRES(mutex_);
  void end_hopeless(TimePoint now, EndedRequests& ended, Wakes& wakes) REQUIRES(mutex_);
  TimePoint next_hopeless(TimePoint now) REQUIRES(mutex_);
  void learn_target(SloPolicy& slo, const Batch& batch, TimePoint now) REQUIRES(mutex_);
  void apply_target() REQUIRES(mutex_);
  void apply_changes() REQUIRES(mutex_);
  void apply_options() REQUIRES(mutex_);

  // The end of requests.
  void end_late(TimePoint now, EndedRequests& ended, Wakes& wakes) REQUIRES(mutex_);
  TimePoint next_deadline(TimePoint now) REQUIRES(mutex_);
  void end(Request& request, Outcome outcome, TimePoint now, EndedRequests& ended, Wakes& wakes) REQUIRES(mutex_);
  void count(const Request& request, Outcome outcome) REQUIRES(mutex_);
  void before_event(TimePoint now) REQUIRES(mutex_) {
    if (now < next_second_.load(std::memory_order_relaxed)) return;
    next_second_.store(history_.before_event(now, counters_, times_), std::memory_order_relaxed);
  }
  void settle(TimePoint now, Wakes& wakes) REQUIRES(mutex_);
  bool exhausted() const REQUIRES(mutex_);
  bool drained() const REQUIRES(mutex_);
  bool finished() const REQUIRES(mutex_);

  // Constant after construction.
  const std::string id_;
  const TimePoint created_ = Clock::now();
  const TenantShares tenants_;
  const bool bounds_weight_;  // of the queue

  // Own synchronisation.
  std::atomic<bool> closed_{false};                       // written under mutex_
  std::atomic<bool> answers_fast_{false};                 // the same
  std::atomic<TimePoint> next_second_{TimePoint::min()};  // written under mutex_: when history_ takes a snapshot
  Times<DurationHistogram> times_;

  mutable Mutex mutex_;
  EngineOptions options_ GUARDED_BY(mutex_);
  BatchPolicy policy_ GUARDED_BY(mutex_);
  std::optional<SloPolicy> slo_ GUARDED_BY(mutex_);  // if there is a target
  BucketPolicy buckets_ GUARDED_BY(mutex_);
  std::size_t batch_limit_ GUARDED_BY(mutex_);  // batch_size, or less because of the target or of the memory
  std::vector<MemoryCeiling> ceilings_ GUARDED_BY(mutex_){1};  // by place
  RequestQueue queue_ GUARDED_BY(mutex_);
  LiveList live_ GUARDED_BY(mutex_);                       // all accepted requests that have not ended
  std::atomic<std::uint64_t> live_count_{0};               // written under mutex_
  bool drains_ GUARDED_BY(mutex_) = true;                  // false after close(false): nothing is queued again
  std::vector<IdleWorker*> idle_ GUARDED_BY(mutex_);       // the most recently idle worker is last
  int reserved_ GUARDED_BY(mutex_) = 0;                    // batches reserved for workers and not yet cut
  TimePoint ready_ GUARDED_BY(mutex_) = TimePoint::max();  // when there were first an item and an idle worker
  int running_batches_ GUARDED_BY(mutex_) = 0;
  std::uint32_t last_batch_ GUARDED_BY(mutex_) = 0;
  std::size_t running_items_ GUARDED_BY(mutex_) = 0;
  std::int64_t least_due_priority_ GUARDED_BY(mutex_) = kAnyPriority;
  std::vector<Waiter*> drain_waiters_ GUARDED_BY(mutex_);
  double mean_weight_ GUARDED_BY(mutex_) = 0;  // of the last batches, if weights count
  Counters counters_ GUARDED_BY(mutex_);
  std::map<std::string, EventCounts, std::less<>> tenant_counts_ GUARDED_BY(mutex_);  // its keys are constant
  StatsHistory history_ GUARDED_BY(mutex_){created_};

  // Parts that share mutex_.
  DeadlineTimer deadline_timer_{*this, mutex_};
  Recorder recorder_{mutex_, queue_, running_batches_};
};

}  // namespace service_streamer
