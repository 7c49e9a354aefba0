#include "simulation/slo_server.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <vector>

#include "service_streamer/batching/batch_policy.h"
#include "service_streamer/batching/slo_policy.h"
#include "simulation/event_loop.h"
#include "simulation/random.h"
#include "simulation/workload.h"

namespace service_streamer::simulation {
namespace {

constexpr int kWarmUpShare = 4;

struct SloBatch {
  int items = 0;
  int ending = 0;
  Duration age{0};
  std::vector<std::pair<std::size_t, int>> ranges;  // request, items
};

class SloServer final : EventLoop<SloBatch> {
 public:
  SloServer(const Cell& cell, Duration slo, Noise noise, bool with_slo, std::uint64_t seed, int requests)
      : EventLoop(cell.workers),
        cell_(cell),
        slo_(slo),
        noise_(noise),
        random_(seed + 1),
        workload_(cell, seed),
        length_(requests),
        policy_(policy_options()) {
    if (with_slo) slo_policy_.emplace(SloPolicy::Options{slo, policy_options().batch_size, cell.workers});
  }

  SloOutcome run() {
    while (arrivals_ < length_) step();
    outcome_.seconds = std::chrono::duration<double>(now() - measured_from_).count();
    return outcome_;
  }

 private:
  struct Queued {
    TimePoint arrived;
    int items = 0;
    int left = 0;
    int running = 0;
    bool measured = false;
  };

  BatchPolicy::Options policy_options() const {
    return {PolicyKind::kAdaptive, static_cast<std::size_t>(limit_ > 0 ? limit_ : cell_.batch_size), cell_.max_latency,
            cell_.workers};
  }

  TimePoint next_arrival() const override { return workload_.next(); }

  void arrive() override {
    const Arrival arrival = workload_.pop();
    ++arrivals_;
    const bool measured = arrivals_ > length_ / kWarmUpShare;
    if (measured && outcome_.arrived++ == 0) measured_from_ = now();
    end_hopeless();
    if (slo_policy_ && slo_policy_->refuse(now(), Duration::zero(), static_cast<std::size_t>(items_),
                                           static_cast<std::size_t>(arrival.items)) > Duration::zero()) {
      if (measured) ++outcome_.refused;
      return;
    }
    policy_.arrived(now());
    waiting_.push_back(requests_.size());
    requests_.push_back({now(), arrival.items, arrival.items, arrival.items, measured});
    items_ += arrival.items;
  }

  void complete(const Worker& worker) override {
    const auto items = static_cast<std::size_t>(worker.items);
    policy_.completed(now(), items, now() - worker.start, worker.ending);
    if (slo_policy_) {
      slo_policy_->completed(now(), worker.start, items, worker.age);
      limit_ = static_cast<int>(slo_policy_->batch_limit());
      policy_.configure(policy_options());
    }
    for (const auto& [index, count] : worker.ranges) {
      Queued& request = requests_[index];
      request.running -= count;
      if (request.running > 0 || !request.measured) continue;
      ++outcome_.answered;
      if (now() - request.arrived > slo_) continue;
      ++outcome_.in_time;
      outcome_.items_in_time += request.items;
    }
    end_hopeless();
  }

  void end_hopeless() {
    while (slo_policy_ && !waiting_.empty()) {
      Queued& front = requests_[waiting_.front()];
      if (!slo_policy_->hopeless(now(), front.arrived, static_cast<std::size_t>(front.left),
                                 static_cast<std::size_t>(items_)))
        return;
      if (front.measured) ++outcome_.ended;
      front.measured = false;
      items_ -= front.left;
      waiting_.pop_front();
    }
  }

  bool is_empty() const override { return items_ == 0; }

  TimePoint due() override {
    const TimePoint at = policy_.due(queue(), now()).at;
    if (!slo_policy_) return at;
    return std::min(at, slo_policy_->latest_start(queue().oldest, static_cast<std::size_t>(items_)));
  }

  BatchPolicy::Queue queue() const {
    return {static_cast<std::size_t>(items_), static_cast<int>(waiting_.size()), idle(),
            requests_[waiting_.front()].arrived, ready_since()};
  }

  Duration service(int items) {
    const auto base = static_cast<double>(cell_.model.service(items).count());
    double factor = 1;
    if (noise_ == Noise::kUniform) factor += 0.2 * (2 * random_.uniform() - 1);
    if (noise_ == Noise::kStragglers) factor += random_.uniform() < 0.01 ? 2 : 0.1 * (2 * random_.uniform() - 1);
    return Duration(static_cast<Duration::rep>(base * factor));
  }

  void start_batch() override {
    end_hopeless();
    if (items_ == 0) return;
    const int limit = static_cast<int>(policy_.share(queue()));
    const Worker& worker = start([&](SloBatch& batch) {
      batch.age = now() - queue().oldest;
      take(batch, limit);
      return service(batch.items);
    });
    policy_.dispatched(now(), worker.ending);
    if (slo_policy_) slo_policy_->dispatched(now(), static_cast<std::size_t>(worker.items));
  }

  void take(SloBatch& batch, int limit) {
    while (batch.items < limit && !waiting_.empty()) {
      const std::size_t index = waiting_.front();
      Queued& front = requests_[index];
      const int taken = std::min(limit - batch.items, front.left);
      batch.ranges.push_back({index, taken});
      batch.items += taken;
      front.left -= taken;
      items_ -= taken;
      if (front.left > 0) continue;
      waiting_.pop_front();
      ++batch.ending;
    }
  }

  const Cell& cell_;
  const Duration slo_;
  const Noise noise_;
  Random random_;
  Workload workload_;
  const int length_;
  int limit_ = 0;
  BatchPolicy policy_;
  std::optional<SloPolicy> slo_policy_;
  std::vector<Queued> requests_;
  std::deque<std::size_t> waiting_;
  int items_ = 0;
  int arrivals_ = 0;
  TimePoint measured_from_;
  SloOutcome outcome_;
};

}  // namespace

double capacity_within(const Cell& cell, Duration slo) {
  const auto seconds = [](Duration value) { return std::chrono::duration<double>(value).count(); };
  double best = 0;
  for (int items = 1; items <= cell.batch_size; ++items) {
    const double service = seconds(cell.model.service(items));
    if (service * (1 + 1.0 / cell.workers) <= seconds(slo)) best = std::max(best, cell.workers * items / service);
  }
  return best;
}

SloOutcome simulate_slo(const Cell& cell, Duration slo, Noise noise, bool with_slo, std::uint64_t seed, int requests) {
  return SloServer(cell, slo, noise, with_slo, seed, requests).run();
}

}  // namespace service_streamer::simulation
