#pragma once

#include <cstddef>
#include <vector>

#include "service_streamer/base/clock.h"
#include "service_streamer/batching/batch_cut.h"

namespace service_streamer {

// Finds the guilty requests of a batch whose run failed. A pure class: no lock, no clock, no thread. It chooses which
// requests run next, and the worker runs them.
//
// The worker keeps one batch of everything that has neither an answer nor an error. Each run takes parts from its
// front: next() says which. If the run passes, its requests are answered. If it fails, failed() says whether its
// error is the error of that one request. Otherwise the parts go back to the front of the batch.
//
// A request is only failed by a run of its own, so an innocent request never gets the error of another one. While k
// guilty requests of n are at most a quarter, the search takes k * (log2(n / k) + 2) runs on average over their
// places, give or take one, and k + 3 more at most. This is generalized binary splitting (Hwang 1972) with a number
// of guilty requests that is learned:
// - A group that failed is halved. If one half passes, the other one must be guilty: it is halved without a run of
//   its own.
// - If the first half fails, nothing is known about the other one. It joins the requests that are not suspected.
// - Those run in groups that hold half a guilty request, going by how many were found so far.
//
// A group that ran out of memory is run again in groups of at most half of its items, which grow again as they pass.
// Only a request larger than such a group is cut.
//
// Once more than a quarter of the requests are guilty, or after more runs than that takes, the search ends when its
// budget of time is spent: see over().
class Isolation {
 public:
  // The run of the whole batch, which failed.
  struct FirstRun {
    std::size_t requests = 0;
    std::size_t items = 0;
    TimePoint begin;
    TimePoint end;
  };

  // `budget`: of time, in multiples of what the first run took.
  Isolation(const FirstRun& first, double budget);

  // Whether the search has ended: then requests that are whole had better wait and run alone later, and next() gives
  // single parts.
  bool over(TimePoint now);

  // What runs next of these parts, of which there is at least one.
  template <typename Part>
  BatchCut next(const std::vector<Part>& parts) {
    const std::size_t most = start_run(parts.size());
    BatchCut cut;
    while (cut.parts < most && (over_ || cut.items + parts[cut.parts].count <= item_limit_)) {
      cut.items += parts[cut.parts++].count;
    }
    if (cut.items == 0) cut.items = cut.inside = static_cast<std::uint32_t>(item_limit_);
    running_ = cut.parts;
    return cut;
  }

  // What became of the run that next() chose, of which so many parts and items were left when it began.
  void passed();
  // True: it is the error of the one request in it.
  bool failed(std::size_t parts, std::size_t items, bool out_of_memory);

  // Of the batch, the first one not included.
  std::size_t runs() const { return runs_; }

 private:
  std::size_t start_run(std::size_t parts);
  std::size_t group(std::size_t parts) const;

  const std::size_t requests_;
  const std::size_t free_runs_;  // which take no notice of the budget
  const TimePoint begun_;
  const Duration budget_;

  std::size_t runs_ = 0;
  std::size_t guilty_ = 0;
  std::size_t suspects_;       // so many parts at the front have a guilty one among them
  std::size_t running_ = 0;    // whole parts in the run under way
  std::size_t item_limit_;     // of a run
  bool passed_below_ = false;  // the last run passed with this limit
  bool over_ = false;
};

}  // namespace service_streamer
