#include "simulation/slo_server.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <vector>

#include "service_streamer/batching/batch_policy.h"
#include "service_streamer/batching/slo_policy.h"
#include "simulation/random.h"
#include "simulation/server.h"
#include "simulation/workload.h"

namespace service_streamer::simulation {
namespace {

constexpr int kWarmUpShare = 4;

// The queue, the two policies and the workers, joined as in the engine.
class SloServer {
 public:
  SloServer(const Cell& cell, Duration slo, Noise noise, bool with_slo, std::uint64_t seed, int requests)
      : cell_(cell),
        slo_(slo),
        noise_(noise),
        random_(seed + 1),
        workload_(cell, seed),
        length_(requests),
        policy_(policy_options()),
        workers_(static_cast<std::size_t>(cell.workers)),
        idle_(cell.workers) {
    if (with_slo) slo_policy_.emplace(SloPolicy::Options{slo, policy_options().batch_size, cell.workers});
  }

  SloOutcome run() {
    while (arrivals_ < length_) {
      now_ = next_event();
      for (Worker& worker : workers_) {
        if (worker.busy && worker.until == now_) complete(worker);
      }
      while (workload_.next() == now_) arrive();
      dispatch();
    }
    outcome_.seconds = std::chrono::duration<double>(now_ - measured_from_).count();
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

  struct Worker {
    bool busy = false;
    TimePoint start;
    TimePoint until;
    int items = 0;
    int ending = 0;
    Duration age{0};
    std::vector<std::pair<std::size_t, int>> ranges;  // request, items
  };

  BatchPolicy::Options policy_options() const {
    return {PolicyKind::kAdaptive, static_cast<std::size_t>(limit_ > 0 ? limit_ : cell_.batch_size), cell_.max_latency,
            cell_.workers};
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
    ++arrivals_;
    const bool measured = arrivals_ > length_ / kWarmUpShare;
    if (measured && outcome_.arrived++ == 0) measured_from_ = now_;
    end_hopeless();
    if (slo_policy_ && slo_policy_->refuse(now_, Duration::zero(), static_cast<std::size_t>(items_),
                                           static_cast<std::size_t>(arrival.items)) > Duration::zero()) {
      if (measured) ++outcome_.refused;
      return;
    }
    policy_.arrived(now_);
    waiting_.push_back(requests_.size());
    requests_.push_back({now_, arrival.items, arrival.items, arrival.items, measured});
    items_ += arrival.items;
  }

  void complete(Worker& worker) {
    const auto items = static_cast<std::size_t>(worker.items);
    policy_.completed(now_, items, now_ - worker.start, worker.ending);
    if (slo_policy_) {
      slo_policy_->completed(now_, worker.start, items, worker.age);
      limit_ = static_cast<int>(slo_policy_->batch_limit());
      policy_.configure(policy_options());
    }
    for (const auto& [index, count] : worker.ranges) {
      Queued& request = requests_[index];
      request.running -= count;
      if (request.running > 0 || !request.measured) continue;
      ++outcome_.answered;
      if (now_ - request.arrived > slo_) continue;
      ++outcome_.in_time;
      outcome_.items_in_time += request.items;
    }
    worker.busy = false;
    ++idle_;
    end_hopeless();
  }

  void end_hopeless() {
    while (slo_policy_ && !waiting_.empty()) {
      Queued& front = requests_[waiting_.front()];
      if (!slo_policy_->hopeless(now_, front.arrived, static_cast<std::size_t>(front.left),
                                 static_cast<std::size_t>(items_)))
        return;
      if (front.measured) ++outcome_.ended;
      front.measured = false;
      items_ -= front.left;
      waiting_.pop_front();
    }
  }

  void dispatch() {
    timer_ = TimePoint::max();
    while (items_ > 0 && idle_ > 0) {
      if (!ready_) {
        ready_ = true;
        ready_since_ = now_;
      }
      BatchPolicy::Verdict verdict = policy_.due(queue(), now_);
      if (slo_policy_) {
        const TimePoint latest = slo_policy_->latest_start(queue().oldest, static_cast<std::size_t>(items_));
        verdict.at = std::min(verdict.at, latest);
      }
      if (verdict.at > now_) {
        timer_ = verdict.at + kTimerOvershoot;
        return;
      }
      start_batch();
    }
    ready_ = false;
  }

  BatchPolicy::Queue queue() const {
    return {static_cast<std::size_t>(items_), static_cast<int>(waiting_.size()), idle_,
            requests_[waiting_.front()].arrived, ready_since_};
  }

  Duration service(int items) {
    const auto base = static_cast<double>(cell_.model.service(items).count());
    double factor = 1;
    if (noise_ == Noise::kUniform) factor += 0.2 * (2 * random_.uniform() - 1);
    if (noise_ == Noise::kStragglers) factor += random_.uniform() < 0.01 ? 2 : 0.1 * (2 * random_.uniform() - 1);
    return Duration(static_cast<Duration::rep>(base * factor));
  }

  void start_batch() {
    end_hopeless();
    if (items_ == 0) return;
    Worker& worker =
        *std::find_if(workers_.begin(), workers_.end(), [](const Worker& candidate) { return !candidate.busy; });
    const std::size_t limit = policy_.share(queue());
    worker.items = 0;
    worker.ending = 0;
    worker.age = now_ - queue().oldest;
    worker.ranges.clear();
    while (worker.items < static_cast<int>(limit) && !waiting_.empty()) {
      const std::size_t index = waiting_.front();
      Queued& front = requests_[index];
      const int taken = std::min(static_cast<int>(limit) - worker.items, front.left);
      worker.ranges.push_back({index, taken});
      worker.items += taken;
      front.left -= taken;
      items_ -= taken;
      if (front.left > 0) continue;
      waiting_.pop_front();
      ++worker.ending;
    }
    worker.start = now_;
    worker.until = now_ + service(worker.items);
    worker.busy = true;
    --idle_;
    ready_ = false;
    policy_.dispatched(now_, worker.ending);
    if (slo_policy_) slo_policy_->dispatched(now_, static_cast<std::size_t>(worker.items));
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
  std::vector<Worker> workers_;
  std::vector<Queued> requests_;
  std::deque<std::size_t> waiting_;
  int items_ = 0;
  int idle_;
  int arrivals_ = 0;
  bool ready_ = false;
  TimePoint ready_since_;
  TimePoint timer_ = TimePoint::max();
  TimePoint now_;
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
