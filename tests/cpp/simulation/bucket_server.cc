#include "simulation/bucket_server.h"

#include <array>
#include <cmath>
#include <deque>
#include <vector>

#include "service_streamer/batching/batch_policy.h"
#include "service_streamer/batching/bucket_policy.h"
#include "simulation/server.h"
#include "simulation/workload.h"

namespace service_streamer::simulation {
namespace {

constexpr std::array<double, 5> kBounds{16, 32, 64, 128, 256};
constexpr std::size_t kBuckets = kBounds.size() + 1;
constexpr int kWarmUpShare = 4;

// The queue, the policies and the workers, joined as in the engine.
class BucketServer {
 public:
  BucketServer(const Cell& cell, const PaddedModel& model, Lengths lengths, Grouping grouping, std::uint64_t seed,
               int requests)
      : model_(model),
        lengths_(lengths),
        grouping_(grouping),
        random_(seed + 1),
        workload_(cell, seed),
        closed_(cell.traffic.closed()),
        max_latency_(cell.max_latency),
        limits_{.items = static_cast<std::size_t>(cell.batch_size)},
        length_(requests),
        warm_up_(requests / kWarmUpShare),
        policy_({PolicyKind::kAdaptive, limits_.items, cell.max_latency, cell.workers}),
        workers_(static_cast<std::size_t>(cell.workers)),
        idle_(workers_.size()) {}

  BucketOutcome run() {
    while (answered_ < length_) {
      now_ = next_event();
      for (Worker& worker : workers_) {
        if (worker.busy && worker.until == now_) complete(worker);
      }
      while (workload_.next() == now_) arrive();
      dispatch();
    }
    std::ranges::sort(latencies_);
    double sum = 0;
    for (const double latency : latencies_) sum += latency;
    const auto measured = static_cast<double>(latencies_.size());
    return {.cost = (closed_ ? seconds(now_ - measured_from_) : sum) / measured,
            .p99 = latencies_[latencies_.size() * 99 / 100],
            .padding = 1 - sum_ / padded_};
  }

 private:
  struct Item {
    TimePoint arrived;
    int client;
    double length;
  };

  struct Worker {
    bool busy = false;
    TimePoint start;
    TimePoint until;
    double longest = 0;
    std::vector<std::size_t> items;
  };

  std::size_t bucket_of(double length) const {
    if (grouping_ == Grouping::kNone) return 0;
    return static_cast<std::size_t>(std::ranges::lower_bound(kBounds, length) - kBounds.begin());
  }

  TimePoint next_event() const {
    TimePoint next = std::min(workload_.next(), timer_);
    for (const Worker& worker : workers_) {
      if (worker.busy) next = std::min(next, worker.until);
    }
    return next;
  }

  void arrive() {
    const Arrival arrival = workload_.pop();
    const double length = draw_length(lengths_, random_);
    queues_[bucket_of(length)].push_back(items_.size());
    items_.push_back({now_, arrival.client, length});
    policy_.arrived(now_);
  }

  void complete(Worker& worker) {
    const double padded = static_cast<double>(worker.items.size()) * worker.longest;
    policy_.completed(now_, worker.items.size(), now_ - worker.start, static_cast<int>(worker.items.size()));
    buckets_.completed(now_, worker.start, false, padded);
    if (answered_ > warm_up_) padded_ += padded;
    int rank = 0;
    for (const std::size_t index : worker.items) {
      const Item& item = items_[index];
      workload_.answered(item.client, now_, rank++);
      if (++answered_ <= warm_up_) measured_from_ = now_;
      if (answered_ > warm_up_) latencies_.push_back(seconds(now_ - item.arrived));
      if (answered_ > warm_up_) sum_ += item.length;
    }
    worker.busy = false;
    ++idle_;
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

  BatchPolicy::Queue queue_of(const BucketPolicy::Company& company, std::size_t bucket, std::size_t idle) const {
    return {company.items, company.requests, static_cast<int>(idle), items_[queues_[bucket].front()].arrived,
            ready_since_};
  }

  void dispatch() {
    timer_ = TimePoint::max();
    while (idle_ > 0) {
      std::size_t first = oldest(1);
      if (first == kBuckets) break;
      if (!ready_) ready_since_ = now_;
      ready_ = true;
      const BatchPolicy::Verdict verdict = policy_.due(queue_of(plan(first, limits_).company, first, idle_), now_);
      const std::size_t full = oldest(limits_.items);
      const bool overdue = now_ - items_[queues_[first].front()].arrived >= max_latency_;
      if (verdict.at > now_ && full == kBuckets) {
        timer_ = verdict.at + kTimerOvershoot;
        return;
      }
      if (full != kBuckets && verdict.at > now_ && !overdue) first = full;
      start_batch(first);
    }
    ready_ = false;
  }

  void start_batch(std::size_t first) {
    Worker& worker = *std::ranges::find(workers_, false, &Worker::busy);
    const auto others = static_cast<std::size_t>(
        std::ranges::count_if(queues_, [](const std::deque<std::size_t>& queue) { return !queue.empty(); }) - 1);
    BatchLimits limits = limits_;
    limits.items = policy_.share(queue_of(company_of(first), first, idle_ > others ? idle_ - others : 1));
    const BucketPolicy::Plan chosen = plan(first, limits);
    worker.items.clear();
    worker.longest = 0;
    take(worker, first, limits.items);
    for (const std::uint64_t joining : {chosen.joining, chosen.partly}) {
      for (std::size_t i = 0; i < kBuckets; ++i) {
        if ((joining >> i & 1) != 0) take(worker, i, limits.items);
      }
    }
    const double service = model_.service(static_cast<int>(worker.items.size()), worker.longest);
    worker.start = now_;
    worker.until = now_ + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(service));
    worker.busy = true;
    --idle_;
    ready_ = false;
    policy_.dispatched(now_, static_cast<int>(worker.items.size()));
  }

  void take(Worker& worker, std::size_t bucket, std::size_t most) {
    std::deque<std::size_t>& queue = queues_[bucket];
    for (; worker.items.size() < most && !queue.empty(); queue.pop_front()) {
      worker.items.push_back(queue.front());
      worker.longest = std::max(worker.longest, items_[queue.front()].length);
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
  std::vector<Worker> workers_;
  std::size_t idle_;
  std::array<std::deque<std::size_t>, kBuckets> queues_;
  std::vector<Item> items_;
  int answered_ = 0;
  bool ready_ = false;
  TimePoint ready_since_;
  TimePoint timer_ = TimePoint::max();
  TimePoint now_;
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
