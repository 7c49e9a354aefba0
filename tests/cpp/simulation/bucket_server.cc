#include "simulation/bucket_server.h"

#include <array>
#include <cmath>
#include <deque>
#include <vector>

#include "service_streamer/batching/batch_policy.h"
#include "service_streamer/batching/bucket_policy.h"
#include "simulation/event_loop.h"
#include "simulation/workload.h"

namespace service_streamer::simulation {
namespace {

constexpr std::array<double, 5> kBounds{16, 32, 64, 128, 256};
constexpr std::size_t kBuckets = kBounds.size() + 1;
constexpr int kWarmUpShare = 4;

struct BucketBatch {
  double longest = 0;
  std::vector<std::size_t> items;
};

class BucketServer final : EventLoop<BucketBatch> {
 public:
  BucketServer(const Cell& cell, const PaddedModel& model, Lengths lengths, Grouping grouping, std::uint64_t seed,
               int requests)
      : EventLoop(cell.workers),
        model_(model),
        lengths_(lengths),
        grouping_(grouping),
        random_(seed + 1),
        workload_(cell, seed),
        closed_(cell.traffic.closed()),
        max_latency_(cell.max_latency),
        limits_{.items = static_cast<std::size_t>(cell.batch_size)},
        length_(requests),
        warm_up_(requests / kWarmUpShare),
        policy_({PolicyKind::kAdaptive, limits_.items, cell.max_latency, cell.workers}) {}

  BucketOutcome run() {
    while (answered_ < length_) step();
    std::ranges::sort(latencies_);
    double sum = 0;
    for (const double latency : latencies_) sum += latency;
    const auto measured = static_cast<double>(latencies_.size());
    return {.cost = (closed_ ? seconds(now() - measured_from_) : sum) / measured,
            .p99 = latencies_[latencies_.size() * 99 / 100],
            .padding = 1 - sum_ / padded_};
  }

 private:
  struct Item {
    TimePoint arrived;
    int client;
    double length;
  };

  std::size_t bucket_of(double length) const {
    if (grouping_ == Grouping::kNone) return 0;
    return static_cast<std::size_t>(std::ranges::lower_bound(kBounds, length) - kBounds.begin());
  }

  TimePoint next_arrival() const override { return workload_.next(); }

  void arrive() override {
    const Arrival arrival = workload_.pop();
    const double length = draw_length(lengths_, random_);
    queues_[bucket_of(length)].push_back(items_.size());
    items_.push_back({now(), arrival.client, length});
    policy_.arrived(now());
  }

  void complete(const Worker& worker) override {
    const double padded = static_cast<double>(worker.items.size()) * worker.longest;
    const std::size_t items = worker.items.size();
    const double weight = grouping_ == Grouping::kNone ? static_cast<double>(items) : padded;
    policy_.completed(now(), items, now() - worker.start, static_cast<int>(items), weight);
    buckets_.completed(now(), worker.start, false, padded);
    if (answered_ > warm_up_) padded_ += padded;
    int rank = 0;
    for (const std::size_t index : worker.items) {
      const Item& item = items_[index];
      workload_.answered(item.client, now(), rank++);
      if (++answered_ <= warm_up_) measured_from_ = now();
      if (answered_ > warm_up_) latencies_.push_back(seconds(now() - item.arrived));
      if (answered_ > warm_up_) sum_ += item.length;
    }
  }

  // The bucket with the oldest item of those with at least so many items; kBuckets if there is none.
  std::size_t oldest(std::size_t items) const {
    std::size_t best = kBuckets;
    for (std::size_t i = 0; i < kBuckets; ++i) {
      if (queues_[i].size() < items) continue;
      if (best == kBuckets || queues_[i].front() < queues_[best].front()) best = i;
    }
    return best;
  }

  BucketPolicy::Company company_of(std::size_t bucket) const {
    const std::deque<std::size_t>& queue = queues_[bucket];
    BucketPolicy::Company company{
        .items = queue.size(), .requests = static_cast<int>(queue.size()), .full = queue.size() >= limits_.items};
    for (const std::size_t index : queue) company.heaviest = std::max(company.heaviest, items_[index].length);
    return company;
  }

  BucketPolicy::Plan plan(std::size_t first, const BatchLimits& limits) const {
    std::array<BucketPolicy::Company, kBuckets> companies;
    for (std::size_t i = 0; i < kBuckets; ++i) companies[i] = company_of(i);
    if (grouping_ != Grouping::kBuckets || companies[first].full) return {.company = companies[first]};
    return buckets_.plan(companies, first, limits);
  }

  BatchPolicy::Queue queue_of(const BucketPolicy::Company& company, std::size_t bucket, int idle) const {
    return {company.items, company.requests, idle, items_[queues_[bucket].front()].arrived, ready_since()};
  }

  bool is_empty() const override { return oldest(1) == kBuckets; }

  // Also chooses the bucket: the oldest one, or while that is not due a full one.
  TimePoint due() override {
    first_ = oldest(1);
    const TimePoint at = policy_.due(queue_of(plan(first_, limits_).company, first_, idle()), now()).at;
    const std::size_t full = oldest(limits_.items);
    if (at <= now() || full == kBuckets) return at;
    if (now() - items_[queues_[first_].front()].arrived < max_latency_) first_ = full;
    return now();
  }

  void start_batch() override {
    const auto others = static_cast<int>(
        std::ranges::count_if(queues_, [](const std::deque<std::size_t>& queue) { return !queue.empty(); }) - 1);
    BatchLimits limits = limits_;
    limits.items = policy_.share(queue_of(company_of(first_), first_, std::max(idle() - others, 1)));
    const BucketPolicy::Plan chosen = plan(first_, limits);
    const Worker& worker = start([&](BucketBatch& batch) {
      take(batch, first_, limits.items);
      for (const std::uint64_t joining : {chosen.joining, chosen.partly}) {
        for (std::size_t i = 0; i < kBuckets; ++i) {
          if ((joining >> i & 1) != 0) take(batch, i, limits.items);
        }
      }
      const double service = model_.service(static_cast<int>(batch.items.size()), batch.longest);
      return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(service));
    });
    policy_.dispatched(now(), static_cast<int>(worker.items.size()));
  }

  void take(BucketBatch& batch, std::size_t bucket, std::size_t most) {
    std::deque<std::size_t>& queue = queues_[bucket];
    for (; batch.items.size() < most && !queue.empty(); queue.pop_front()) {
      batch.items.push_back(queue.front());
      batch.longest = std::max(batch.longest, items_[queue.front()].length);
    }
  }

  const PaddedModel& model_;
  const Lengths lengths_;
  const Grouping grouping_;
  Random random_;
  Workload workload_;
  const bool closed_;
  const Duration max_latency_;
  const BatchLimits limits_;
  const int length_;
  const int warm_up_;
  BatchPolicy policy_;
  BucketPolicy buckets_;
  std::array<std::deque<std::size_t>, kBuckets> queues_;
  std::vector<Item> items_;
  std::size_t first_ = 0;  // the bucket from which the next batch starts
  int answered_ = 0;
  TimePoint measured_from_;
  std::vector<double> latencies_;
  double sum_ = 0;
  double padded_ = 0;
};

}  // namespace

double draw_length(Lengths lengths, Random& random) {
  switch (lengths) {
    case Lengths::kEqual:
      return 40;
    case Lengths::kTwoKinds:
      return random.uniform() < 0.8 ? random.between(12, 32) : random.between(350, 512);
    case Lengths::kLogNormal:
    case Lengths::kWide:
      break;
  }
  double normal = -6;
  for (int i = 0; i < 12; ++i) normal += random.uniform();
  const double spread = lengths == Lengths::kLogNormal ? 0.7 : 1.1;
  return std::clamp(std::round(40 * std::exp(spread * normal)), 4.0, 512.0);
}

BucketOutcome simulate_buckets(const Cell& cell, const PaddedModel& model, Lengths lengths, Grouping grouping,
                               std::uint64_t seed, int requests) {
  return BucketServer(cell, model, lengths, grouping, seed, requests).run();
}

}  // namespace service_streamer::simulation
