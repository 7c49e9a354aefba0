#pragma once

#include <cstddef>
#include <vector>

#include "service_streamer/base/clock.h"
#include "service_streamer/batching/batch_cut.h"

namespace service_streamer {

// What the runs of a batch have shown about the memory, in items. 0: nothing.
struct MemoryLesson {
  std::size_t failed = 0;  // of the smallest part that had too little memory although it has several items
  std::size_t passed = 0;  // of the largest part that ran, if all ran in parts
};

// Finds the guilty requests of a batch whose run failed. It chooses which requests run next, and the worker runs
// them. It has no lock, clock or thread, and belongs to one worker. No call blocks or throws.
//
// The worker keeps a batch of all requests that have neither a result nor an error. next() says how many ranges at its
// front run next. If the run passes, the worker calls passed() and completes its requests. If the run fails, the
// worker calls failed(). If that returns true, the error belongs to the only request of the run. Otherwise the worker
// puts the ranges back at the front of the batch.
//
// A request fails only by a run of its own, so an innocent request never gets the error of another request. If k of n
// requests are guilty, and k is at most n / 4, the search takes about k * (log2(n / k) + 2) runs on average, and at
// most k + 3 more. The method is generalized binary splitting (Hwang 1972), with an estimate of the number of guilty
// requests:
// - A group that failed is halved. If one half passes, the other half must be guilty, and is halved without a run of
//   its own.
// - If the first half fails, nothing is known about the second half. It joins the requests that are not suspected.
// - Requests that are not suspected run in groups. By the share found so far, a group should have half a guilty
//   request.
//
// If a group runs out of memory, its requests run again in groups of at most half as many items. The groups grow
// again as they pass. Only a request larger than such a group is cut.
//
// If more than a quarter of the requests are guilty, or the search takes more runs than expected, it ends when its
// budget of time is spent: see over().
class Isolation {
 public:
  // The failed run of the whole batch.
  struct FirstRun {
    std::size_t requests = 0;
    std::size_t items = 0;
    TimePoint begin;
    TimePoint end;
  };

  // `budget` limits the time of the search, in multiples of the time of the first run.
  Isolation(const FirstRun& first, double budget);

  // True if the search has ended because its budget is spent. Then the worker should postpone whole requests (they
  // run alone later), and next() returns one range at a time for the rest.
  bool over(TimePoint now);

  // Returns what runs next: the items of `ranges` before the cut. `ranges` is not empty.
  template <typename Range>
  BatchCut next(const std::vector<Range>& ranges) {
    const std::size_t max_ranges = start_run(ranges.size());
    BatchCut cut;
    while (cut.ranges < max_ranges && (over_ || cut.items + ranges[cut.ranges].count <= item_limit_)) {
      cut.items += ranges[cut.ranges++].count;
    }
    if (cut.items == 0) cut.items = cut.inside = static_cast<std::uint32_t>(item_limit_);
    running_ = cut.ranges;
    running_items_ = cut.items;
    return cut;
  }

  // The run that next() chose has passed.
  void passed();
  // The run that next() chose has failed; `ranges` and `items` are its size, without requests that ended before it
  // began. Returns true if the error belongs to the only request of the run.
  bool failed(std::size_t ranges, std::size_t items, bool out_of_memory);

  // An item that has too little memory alone may be the cause of all failures, so `passed` is 0 then.
  MemoryLesson lesson() const {
    return {.failed = failed_items_, .passed = failed_alone_ || over_ ? 0 : passed_items_};
  }

  // The number of runs since the failed run of the whole batch.
  std::size_t runs() const { return runs_; }

 private:
  std::size_t start_run(std::size_t ranges);
  std::size_t group(std::size_t ranges) const;

  const std::size_t requests_;
  const std::size_t free_runs_;  // the budget applies only after this many runs
  const TimePoint begun_;
  const Duration budget_;

  std::size_t runs_ = 0;
  std::size_t guilty_ = 0;
  std::size_t suspects_;           // the first `suspects_` ranges contain a guilty request
  std::size_t running_ = 0;        // whole ranges in the current run
  std::size_t item_limit_;         // of a run, after one ran out of memory
  bool passed_below_ = false;      // the last run passed with this limit
  std::size_t running_items_ = 0;  // in the current run
  std::size_t failed_items_ = 0;   // the fewest of a run of several that ran out of memory
  std::size_t passed_items_ = 0;   // the most of a run that passed after that
  bool failed_alone_ = false;      // an item ran out of memory alone
  bool over_ = false;
};

}  // namespace service_streamer
