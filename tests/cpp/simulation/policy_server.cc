#include <algorithm>
#include <vector>

#include "simulation/server.h"

namespace service_streamer::simulation {
namespace {

// Asks the policy after each arrival, completion and timer, as the engine does.
class PolicyServer {
 public:
  PolicyServer(const Cell& cell, PolicyKind kind, std::uint64_t seed, Length length)
      : cell_(cell),
        backlog_(cell, seed, length),
        policy_({kind, static_cast<std::size_t>(cell.batch_size), cell.max_latency, cell.workers}),
        workers_(static_cast<std::size_t>(cell.workers)),
        idle_(cell.workers) {}

  double run() {
    while (!backlog_.finished()) {
      now_ = next_event();
      for (Worker& worker : workers_) {
        if (worker.busy && worker.until == now_) complete(worker);
      }
      // All arrivals at this time are queued before a worker wakes up.
      while (backlog_.next_arrival() == now_) {
        backlog_.arrive();
        policy_.arrived(now_);
      }
      dispatch();
    }
    return backlog_.cost();
  }

 private:
  struct Worker {
    bool busy = false;
    TimePoint until;
    Duration service{0};
    int items = 0;
    int ending = 0;
    Ranges ranges;
  };

  TimePoint next_event() const {
    TimePoint next = std::min(backlog_.next_arrival(), timer_);
    for (const Worker& worker : workers_) {
      if (worker.busy) next = std::min(next, worker.until);
    }
    return next;
  }

  void complete(Worker& worker) {
    policy_.completed(now_, static_cast<std::size_t>(worker.items), worker.service, worker.ending);
    backlog_.complete(worker.ranges, now_);
    worker.busy = false;
    ++idle_;
  }

  void dispatch() {
    timer_ = TimePoint::max();
    while (backlog_.items() > 0 && idle_ > 0) {
      if (!ready_) {
        ready_ = true;
        ready_since_ = now_;
      }
      const BatchPolicy::Verdict verdict = policy_.due(queue(), now_);
      if (verdict.at > now_) {
        timer_ = verdict.at + kTimerOvershoot;
        return;
      }
      start_batch();
    }
    ready_ = false;
  }

  BatchPolicy::Queue queue() const {
    return {static_cast<std::size_t>(backlog_.items()), backlog_.requests(), idle_, backlog_.oldest(), ready_since_};
  }

  void start_batch() {
    Worker& worker =
        *std::find_if(workers_.begin(), workers_.end(), [](const Worker& candidate) { return !candidate.busy; });
    worker.items = std::min(backlog_.items(), static_cast<int>(policy_.share(queue())));
    worker.ranges.clear();
    worker.ending = backlog_.take(worker.items, worker.ranges);
    worker.service = cell_.model.service(worker.items);
    worker.until = now_ + worker.service;
    worker.busy = true;
    --idle_;
    ready_ = false;
    policy_.dispatched(now_, worker.ending);
  }

  const Cell& cell_;
  Backlog backlog_;
  BatchPolicy policy_;
  std::vector<Worker> workers_;
  int idle_;
  bool ready_ = false;
  TimePoint ready_since_;
  TimePoint timer_ = TimePoint::max();
  TimePoint now_;
};

}  // namespace

double simulate_policy(const Cell& cell, PolicyKind kind, std::uint64_t seed, Length length) {
  return PolicyServer(cell, kind, seed, length).run();
}

}  // namespace service_streamer::simulation
