#pragma once

// Decides when queued items go to an idle worker as a batch, and how many. The class has no lock, clock or thread.
// The engine tells it what happened and when, and it answers until when to wait. The engine calls it under its mutex.
// No call blocks, allocates or throws, and each takes constant time.
//
//   kGreedy    An idle worker takes what is queued.
//   kWindow    Wait until the batch is full, or until `max_latency` after the oldest arrival.
//   kAdaptive  Greedy, with three exceptions:
//              - After a batch completes, its callers may soon send their next requests. If enough callers came back
//                after the last batches, the policy waits for them (it lingers). It does so only as long as the wait
//                costs less than the batch that it saves.
//              - Several workers do not all start small batches at the same time; their starts are spaced.
//              - If the fixed cost of a batch is small beside the cost of its items, a worker takes only a share of
//                the queue. Other workers take the rest, or it runs while the first results are delivered.
//
// `max_latency` bounds the wait: a batch goes at the latest `max_latency` after there are both an item and an idle
// worker (kWindow: after the oldest item arrived). Decisions 002 and 018 say why.

#include <cstddef>

#include "service_streamer/base/clock.h"

namespace service_streamer {

enum class PolicyKind { kAdaptive, kGreedy, kWindow };

// Why a batch went. The last five reasons come from the engine, the others from the policy.
enum class CloseReason {
  kFull,        // it has batch_size items
  kIdle,        // a worker was idle, and it was not worth waiting for more items
  kReturned,    // all callers that were expected back have come back
  kLinger,      // the linger ended before all of them came back
  kMaxLatency,  // it has waited for max_latency
  kWindow,      // the window of kWindow has ended
  kShare,       // the worker took only its share of the queue
  kPriority,    // a request of a priority above 0 was queued
  kMemory,      // a larger batch ran out of memory before
  kSlo,         // a larger or later batch would miss the target of the engine
  kDrain,       // the engine is closed
};

const char* to_string(PolicyKind kind);
const char* to_string(CloseReason reason);

class BatchPolicy {
 public:
  struct Options {
    PolicyKind kind = PolicyKind::kAdaptive;
    std::size_t batch_size = 64;                            // the maximum number of items in a batch, at least 1
    Duration max_latency = std::chrono::milliseconds(100);  // the longest wait for more items, at least 0
    int workers = 1;                                        // the number of workers, at least 1
  };

  // The state of the queue. For due(), `items`, `requests` and `idle_workers` are at least 1. For share(), `items`
  // may be 0.
  struct Queue {
    std::size_t items = 0;
    int requests = 0;
    int idle_workers = 0;
    TimePoint oldest;  // the arrival of the oldest queued request
    TimePoint ready;   // when there were first both an item and an idle worker
  };

  struct Verdict {
    TimePoint at;  // if not later than now, the batch is due; otherwise ask again then, or after the next event
    CloseReason reason;
  };

  // The precision of a timed sleep. A shorter linger is not worth starting.
  static constexpr Duration kTick = std::chrono::microseconds(100);

  explicit BatchPolicy(const Options& options);

  // Changes the options and keeps what was learned.
  void configure(const Options& options);

  // One request arrived.
  void arrived(TimePoint now);

  // A batch was cut for a worker. `finishing` requests have their last item in it.
  void dispatched(TimePoint now, int finishing);

  // A batch of `items` came back after `service`. `finishing` is the value given to dispatched(). `weight` is what the
  // service time grows with, if that is not the number of items.
  void completed(TimePoint now, std::size_t items, Duration service, int finishing, double weight);
  void completed(TimePoint now, std::size_t items, Duration service, int finishing) {
    completed(now, items, service, finishing, static_cast<double>(items));
  }

  // When the queued items should go to a worker.
  Verdict due(const Queue& queue, TimePoint now) const;

  // The maximum number of items that one idle worker should take.
  std::size_t share(const Queue& queue) const;

  // The end of a possible linger, or TimePoint::min() if fewer than two callers are expected back. An idle worker
  // that sleeps until then need not be woken to start the linger.
  TimePoint watch_end() const;

  // Zero before the first batch completes.
  Duration mean_service() const;
  double mean_batch_size() const { return mean_size_; }

 private:
  void learn_cost(double items, double weight, double service);
  void update_watch();
  bool counts_as_return(TimePoint now) const;
  Duration spacing(const Queue& queue) const;
  TimePoint linger_end() const;

  Options options_;

  // Exponentially weighted means over about 8 batches; times are in seconds.
  double mean_service_ = 0;
  double mean_size_ = 0;
  double mean_weight_ = 0;
  double weight_variance_ = 0;
  double weight_service_covariance_ = 0;
  double item_cost_ = 0;   // of an item of mean weight: slope of the service time over the weight; 0 if not known
  double fixed_cost_ = 0;  // intercept of that line: the time that merging two batches saves

  // A return is an arrival soon after a completion. Decayed sums over about 8 batches; the delays are in seconds.
  double answered_sum_ = 0;  // requests answered
  double return_sum_ = 0;    // returns
  double return_delays_ = 0;

  double returns_due_ = 0;       // returns still expected
  double returns_expected_ = 0;  // returns_due_ at the last completion
  Duration burst_{0};            // the time after a completion in which the returns come
  Duration watch_{0};            // the time after a completion in which an arrival counts as a return

  bool any_completed_ = false;
  TimePoint last_completed_;
  TimePoint last_dispatched_;
  int in_flight_ = 0;  // requests that end with one of the running batches
};

}  // namespace service_streamer
