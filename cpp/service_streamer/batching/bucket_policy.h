#pragma once

// Decides which buckets share a batch. A bucket has items of similar weight, for instance length. The items of a batch
// are padded to the heaviest one. So a batch of one bucket has little padding, but it may have few items.
//
// A batch takes all items of another bucket if the two are answered sooner together than one after the other. If no
// other bucket fits as a whole, it takes a part of one whose padding costs less than the part's share of the fixed cost
// of a batch. The time of a batch is learned: it is a line over the padded weight, the number of items times the weight
// of the heaviest. Decision 032 says why.
//
// The class has no lock and no clock. No call blocks, allocates or throws.

#include <cstddef>
#include <cstdint>
#include <span>

#include "service_streamer/base/clock.h"
#include "service_streamer/batching/batch_cost.h"
#include "service_streamer/batching/batch_limits.h"
#include "service_streamer/batching/request_groups.h"

namespace service_streamer {

class BucketPolicy {
 public:
  using Company = RequestGroups::Company;

  // A batch came back. If it `waited`, its worker began with it only after the batch that came back before.
  void completed(TimePoint now, TimePoint dispatched, bool waited, double padded_weight);

  struct Plan {
    Company company;            // what can be in the batch
    std::uint64_t joining = 0;  // the buckets whose items it takes besides those of the first: bit i is buckets[i]
    std::uint64_t partly = 0;   // the one of which it then takes what fits
  };

  // The batch that begins with the items of buckets[first]. There are at most kMaxBuckets buckets. `requests` counts
  // only those that the items of the bucket complete.
  Plan plan(std::span<const Company> buckets, std::size_t first, const BatchLimits& limits) const;

 private:
  double whole_saving(const Company& batch, const Company& bucket, const BatchLimits& limits) const;
  double part_saving(const Company& batch, const Company& bucket, const BatchLimits& limits) const;

  BatchCost cost_;
  TimePoint last_completed_;
};

}  // namespace service_streamer
