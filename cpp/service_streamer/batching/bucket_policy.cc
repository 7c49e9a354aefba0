#include "service_streamer/batching/bucket_policy.h"

#include <algorithm>

namespace service_streamer {
namespace {

using Company = BucketPolicy::Company;

double padded(const Company& company) {
  return static_cast<double>(company.items) * company.heaviest;
}

Company together(const Company& one, const Company& other) {
  return {.items = one.items + other.items,
          .requests = one.requests + other.requests,
          .sum = one.sum + other.sum,
          .heaviest = std::max(one.heaviest, other.heaviest)};
}

bool fits(const Company& company, const BatchLimits& limits) {
  return company.items <= limits.items && (limits.padded ? padded(company) : company.sum) <= limits.weight;
}

}  // namespace

void BucketPolicy::completed(TimePoint now, TimePoint dispatched, bool waited, double padded_weight) {
  const TimePoint begun = waited ? std::max(dispatched, last_completed_) : dispatched;
  if (padded_weight > 0) cost_.learn(padded_weight, std::max(0.0, seconds(now - begun)));
  last_completed_ = now;
}

// Takes the bucket that saves most, and looks again.
BucketPolicy::Plan BucketPolicy::plan(std::span<const Company> buckets, std::size_t first,
                                      const BatchLimits& limits) const {
  Plan plan{.company = buckets[first]};
  for (;;) {
    std::size_t best = first;
    double best_saving = 0;
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      const bool taken = i == first || (plan.joining >> i & 1) != 0;
      if (taken || buckets[i].items == 0 || buckets[i].full) continue;
      const double saved = saving(plan.company, buckets[i]);
      if (saved <= best_saving || !fits(together(plan.company, buckets[i]), limits)) continue;
      best = i;
      best_saving = saved;
    }
    if (best == first) break;
    plan.company = together(plan.company, buckets[best]);
    plan.joining |= std::uint64_t{1} << best;
  }
  plan.company.full = plan.company.full || plan.company.items >= limits.items;
  return plan;
}

// --- private ---

// The seconds that one batch saves over two; below 0 if it takes longer. The requests of the first batch would be
// answered after that batch, so its time does not count as saved.
double BucketPolicy::saving(const Company& batch, const Company& bucket) const {
  const double alone = padded(bucket) + (batch.requests > 0 ? 0 : padded(batch));
  return cost_.expected(0) - cost_.item_cost() * (padded(together(batch, bucket)) - alone);
}

}  // namespace service_streamer
