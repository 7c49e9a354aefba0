#pragma once

// Decides which requests are accepted, and how large batches are, so that requests are answered within a target time
// (a service level objective). The class has no lock, clock or thread. The engine tells it what happened and when,
// under its mutex. No call blocks or throws, except that the constructor and configure() may throw std::bad_alloc.
//
// The target is a time that 99 % of the answered requests should keep: the time in the queue and in the model. The
// policy learns the time of a batch by its size. For a new request it predicts when the batch with its last item will
// end. A request that would miss the target is refused.
//
// The prediction has a margin. A batch that was late raises it, and batches that were nearly late lower it slowly. A
// batch that took much longer than expected does not raise it, because no prediction can foresee that.
//
// Two rules keep wrong estimates from lasting:
//   - If no batch has run for a while, one request is accepted whatever the prediction: a probe.
//   - While requests are refused, a larger batch is tried from time to time. If it is late, the next trial comes later.
//
// The decision is in docs/decisions/031-slo.md.

#include <cstddef>
#include <vector>

#include "service_streamer/base/clock.h"
#include "service_streamer/batching/batch_cost.h"

namespace service_streamer {

class SloPolicy {
 public:
  struct Options {
    Duration slo = std::chrono::milliseconds(100);  // the target, more than 0
    std::size_t batch_size = 64;                    // the maximum number of items in a batch, at least 1
    int workers = 1;                                // the number of workers, at least 1
  };

  explicit SloPolicy(const Options& options);

  // Changes the options and keeps what was learned. The margin stays the same part of the target.
  void configure(const Options& options);

  // A request of `size` items arrived. It has `waited` elsewhere, and `ahead` items are queued before it. Returns zero
  // if it is accepted. Otherwise it is refused, and lateness() is returned.
  Duration refuse(TimePoint now, Duration waited, std::size_t ahead, std::size_t size);

  // By how much such a request would miss the target, at least 0. If nothing else arrives, it would be accepted after
  // that time.
  Duration lateness(TimePoint now, Duration waited, std::size_t ahead, std::size_t size) const;

  // A batch was cut for a worker.
  void dispatched(TimePoint now, std::size_t items);

  // A batch came back. `dispatched` is the time given to dispatched(). Its oldest request had waited for `age` then.
  void completed(TimePoint now, TimePoint dispatched, std::size_t items, Duration age);

  // True if the first queued request can no longer be in time. It began at `begun` and has `left` of the `queued`
  // items. The next batch has all queued items, or as many as it may have: a smaller one would make the others late.
  bool hopeless(TimePoint now, TimePoint begun, std::size_t left, std::size_t queued) const;

  // When this is true at the latest, if nothing happens. TimePoint::max(): never, because the request is a probe.
  TimePoint hopeless_at(TimePoint begun, std::size_t left, std::size_t queued) const;

  // The time at which the target of a request that began at `begun` has passed.
  TimePoint end_of_target(TimePoint begun) const { return begun + options_.slo; }

  // When the last request arrived, or TimePoint::min().
  TimePoint last_arrival() const { return last_arrived_; }

  // The maximum number of items in a batch. So large batches follow each other fast enough for the target.
  std::size_t batch_limit() const { return batch_limit_; }

  // When the queued items must go, so that the request that began at `begun` is in time.
  TimePoint latest_start(TimePoint begun, std::size_t items) const;

  // The expected time of a batch of one item. Zero before the first batch.
  Duration least_service() const;

 private:
  struct Running {
    TimePoint start;
    TimePoint end;  // expected
  };

  void note_arrival(TimePoint now, std::size_t size);
  double finish(TimePoint now, std::size_t ahead, std::size_t size) const;
  double free_after(TimePoint now, std::size_t worker) const;
  double cost_of(std::size_t items) const;
  void learn_margin(double latency, bool foreseen);
  void end_trial(bool in_time);
  void update_batch_limit();

  Options options_;
  BatchCost cost_;
  std::vector<Running> running_;  // by their expected ends
  TimePoint last_completed_ = TimePoint::min();
  TimePoint last_active_ = TimePoint::min();  // when a batch ended, or a probe was accepted

  double slo_ = 0;     // in seconds
  double margin_ = 0;  // in seconds
  double rate_ = 0;    // items that arrive per second; refused ones count
  TimePoint last_arrived_ = TimePoint::min();

  std::size_t fit_ = 1;          // the largest batch that is expected to keep the target
  std::size_t batch_limit_ = 1;  // the same, or more during a trial
  bool probing_ = false;         // a probe is queued
  bool refused_ = false;         // since the last trial
  int until_trial_ = 0;          // batches until the next trial
  int trial_pause_;              // batches between trials
};

}  // namespace service_streamer
