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

// The first items of a bucket that has more.
Company part_of(Company bucket, std::size_t items) {
  bucket.sum *= static_cast<double>(items) / static_cast<double>(bucket.items);
  bucket.items = items;
  return bucket;
}

std::size_t room_of(const Company& batch, const BatchLimits& limits) {
  return limits.items - std::min(limits.items, batch.items);
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

BucketPolicy::Plan BucketPolicy::plan(std::span<const Company> buckets, std::size_t first,
                                      const BatchLimits& limits) const {
  Plan plan{.company = buckets[first]};
  const auto best_by = [&](const auto& saving) {
    std::size_t best = first;
    double best_saving = 0;
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      if (i == first || buckets[i].items == 0 || (plan.joining >> i & 1) != 0) continue;
      const double saved = saving(buckets[i]);
      if (saved > best_saving) best = i;
      best_saving = std::max(best_saving, saved);
    }
    return best;
  };
  std::size_t best;
  while ((best = best_by([&](const Company& bucket) { return whole_saving(plan.company, bucket, limits); })) != first) {
    plan.company = together(plan.company, buckets[best]);
    plan.joining |= std::uint64_t{1} << best;
  }
  best = best_by([&](const Company& bucket) { return part_saving(plan.company, bucket, limits); });
  if (best != first) {
    plan.company = together(plan.company, part_of(buckets[best], room_of(plan.company, limits)));
    plan.partly = std::uint64_t{1} << best;
  }
  plan.company.full = plan.company.full || plan.company.items >= limits.items;
  return plan;
}

// --- private ---

// The seconds that one batch saves over two; 0 if one is not possible. The requests of the first batch would be
// answered after that batch, so its time does not count as saved.
double BucketPolicy::whole_saving(const Company& batch, const Company& bucket, const BatchLimits& limits) const {
  const Company both = together(batch, bucket);
  if (bucket.full || !fits(both, limits)) return 0;
  const double alone = padded(bucket) + (batch.requests > 0 ? 0 : padded(batch));
  return cost_.expected(0) - cost_.item_cost() * (padded(both) - alone);
}

// The seconds that it saves to fill the batch with a part of the bucket; 0 if all of the bucket fits.
double BucketPolicy::part_saving(const Company& batch, const Company& bucket, const BatchLimits& limits) const {
  const std::size_t room = room_of(batch, limits);
  if (room == 0 || bucket.items <= room) return 0;
  const Company part = part_of(bucket, room), both = together(batch, part);
  if (!fits(both, limits)) return 0;
  const double share = static_cast<double>(room) / static_cast<double>(limits.items);
  return share * cost_.expected(0) - cost_.item_cost() * (padded(both) - padded(batch) - padded(part));
}

}  // namespace service_streamer
