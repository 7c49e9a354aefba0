#pragma once

// Decides when a waiting batch goes to an idle worker. A pure class: no lock, no clock, no thread;
// it is told what happened and when, and answers until when to wait. The engine calls it under its
// own mutex; nothing here blocks, allocates or throws, and every call costs constant time.
//
//   kGreedy    an idle worker takes what is there.
//   kWindow    collect until full or `max_latency` after the oldest arrival.
//   kAdaptive  greedy, except that
//              - right after a batch completed it lingers for the callers that got their answers
//                and are about to ask again, if enough of them came back in the last batches, and
//                only for as long as the wait costs less than the batch it saves;
//              - several workers are kept from starting small batches all at the same time;
//              - where a batch costs next to nothing beside its items, it is no larger than it must be:
//                the rest is for other workers, or runs while those answers are on their way.
//
// `max_latency` bounds the hold: a batch is never kept back for longer than that after an item and
// an idle worker were both there (kWindow: after the oldest item came).

#include <cstddef>

#include "service_streamer/base/clock.h"

namespace service_streamer {

enum class PolicyKind { kAdaptive, kGreedy, kWindow };

// Why a batch closed. The policy gives all but the last three, which are the engine's.
enum class CloseReason {
  kFull,        // batch_size items
  kIdle,        // a worker was idle, and waiting for others was not worth it
  kReturned,    // every caller that was expected back came
  kLinger,      // the linger ended before all of them came
  kMaxLatency,  // held for max_latency
  kWindow,      // the window of policy kWindow ended
  kShare,       // smaller batches serve this model as well
  kPriority,
  kDrain,
};

const char* to_string(PolicyKind kind);
const char* to_string(CloseReason reason);

class BatchPolicy {
 public:
  struct Options {
    PolicyKind kind = PolicyKind::kAdaptive;
    std::size_t batch_size = 64;                            // items that make a batch full, at least 1
    Duration max_latency = std::chrono::milliseconds(100);  // longest hold, at least 0
    int workers = 1;                                        // that take batches, at least 1
  };

  // What waits. `items`, `requests` and `idle_workers` are at least 1; where share() is asked, items may be gone.
  struct Queue {
    std::size_t items = 0;
    int requests = 0;
    int idle_workers = 0;
    TimePoint oldest;  // arrival of the oldest waiting request
    TimePoint ready;   // since when there have been both an item and an idle worker
  };

  struct Verdict {
    TimePoint at;  // now or before: go; otherwise ask again at this time or after the next event
    CloseReason reason;
  };

  // What a timer can keep: shorter lingers are not worth starting.
  static constexpr Duration kTick = std::chrono::microseconds(100);

  explicit BatchPolicy(const Options& options);

  // Takes effect with the next question and keeps what was learned.
  void configure(const Options& options);

  // One request arrived.
  void arrived(TimePoint now);

  // A batch was handed to a worker; `finishing` requests have their last item in it.
  void dispatched(TimePoint now, int finishing);

  // A batch of `items` came back after `service`; `answered` is its `finishing` of dispatched().
  void completed(TimePoint now, std::size_t items, Duration service, int answered);

  Verdict due(const Queue& queue, TimePoint now) const;

  // How many of the waiting items a worker that is among the idle ones takes at most.
  std::size_t share(const Queue& queue) const;

  // Until when returning callers may be lingered for; TimePoint::min() when none are expected, or a
  // single one. A worker that parks until then needs no wake for each of them; one it needs anyway.
  TimePoint watch_end() const;

  // Zero before the first batch completed.
  Duration mean_service() const;
  double mean_batch_size() const { return mean_size_; }

 private:
  void learn_cost(double items, double service);
  void update_watch();
  bool watching(TimePoint now) const;
  Duration spacing(const Queue& queue) const;
  TimePoint linger_end() const;

  Options options_;

  // Exponentially weighted over about 8 batches; times are seconds.
  double mean_service_ = 0;
  double mean_size_ = 0;
  double size_variance_ = 0;
  double size_service_covariance_ = 0;
  double item_cost_ = 0;   // slope of service time over batch size; 0: not known
  double fixed_cost_ = 0;  // intercept of service time over batch size: what merging two batches saves

  // Decayed sums over about 8 batches: who comes back after an answer, and how fast.
  double sent_ = 0;
  double back_ = 0;
  double back_delay_ = 0;

  double due_back_ = 0;  // returns still expected
  double expected_ = 0;  // due_back_ as it was at the last completion
  Duration burst_{0};    // within which the returns come
  Duration watch_{0};    // for how long after a completion an arrival counts as a return

  bool any_completed_ = false;
  TimePoint last_completed_;
  TimePoint last_dispatched_;
  int flying_ = 0;  // requests that end in the batches now running
};

}  // namespace service_streamer
