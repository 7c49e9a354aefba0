#include <algorithm>

#include "simulation/event_loop.h"
#include "simulation/server.h"

namespace service_streamer::simulation {
namespace {

struct PolicyBatch {
  int items = 0;
  int ending = 0;
  Ranges ranges;
};

class PolicyServer final : EventLoop<PolicyBatch> {
 public:
  PolicyServer(const Cell& cell, PolicyKind kind, std::uint64_t seed, Length length)
      : EventLoop(cell.workers),
        cell_(cell),
        backlog_(cell, seed, length),
        policy_({kind, static_cast<std::size_t>(cell.batch_size), cell.max_latency, cell.workers}) {}

  double run() {
    while (!backlog_.finished()) step();
    return backlog_.cost();
  }

 private:
  TimePoint next_arrival() const override { return backlog_.next_arrival(); }

  void arrive() override {
    backlog_.arrive();
    policy_.arrived(now());
  }

  void complete(const Worker& worker) override {
    policy_.completed(now(), static_cast<std::size_t>(worker.items), now() - worker.start, worker.ending);
    backlog_.complete(worker.ranges, now());
  }

  bool is_empty() const override { return backlog_.items() == 0; }

  TimePoint due() override { return policy_.due(queue(), now()).at; }

  void start_batch() override {
    const int items = std::min(backlog_.items(), static_cast<int>(policy_.share(queue())));
    const Worker& worker = start([&](PolicyBatch& batch) {
      batch.items = items;
      batch.ending = backlog_.take(items, batch.ranges);
      return cell_.model.service(items);
    });
    policy_.dispatched(now(), worker.ending);
  }

  BatchPolicy::Queue queue() const {
    return {static_cast<std::size_t>(backlog_.items()), backlog_.requests(), idle(), backlog_.oldest(), ready_since()};
  }

  const Cell& cell_;
  Backlog backlog_;
  BatchPolicy policy_;
};

}  // namespace

double simulate_policy(const Cell& cell, PolicyKind kind, std::uint64_t seed, Length length) {
  return PolicyServer(cell, kind, seed, length).run();
}

}  // namespace service_streamer::simulation
