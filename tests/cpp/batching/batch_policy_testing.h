#pragma once

// Helpers for the tests of BatchPolicy: invented times, and policies with a known history.

#include <gtest/gtest.h>

#include "service_streamer/batching/batch_policy.h"

namespace service_streamer::policy_tests {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;

inline constexpr PolicyKind kKinds[] = {PolicyKind::kAdaptive, PolicyKind::kGreedy, PolicyKind::kWindow};
inline constexpr TimePoint kStart{hours(1)};

inline BatchPolicy::Options options(PolicyKind kind, int workers = 1, Duration max_latency = milliseconds(100)) {
  return {kind, 64, max_latency, workers};
}

inline BatchPolicy::Options adaptive(int workers = 1, Duration max_latency = milliseconds(100)) {
  return options(PolicyKind::kAdaptive, workers, max_latency);
}

// A queue of `items` requests of one item, all queued at `ready`, when `idle_workers` workers were idle.
inline BatchPolicy::Queue waiting(int requests, TimePoint ready, int idle_workers = 1) {
  return {static_cast<std::size_t>(requests), requests, idle_workers, ready, ready};
}

inline void expect_verdict(BatchPolicy::Verdict verdict, TimePoint at, CloseReason reason) {
  EXPECT_EQ(verdict.at, at) << "off by " << (verdict.at - at).count() << " ns";
  EXPECT_STREQ(to_string(verdict.reason), to_string(reason));
}

// Runs one batch of `items` requests of one item. Returns when it completed.
inline TimePoint run_batch(BatchPolicy& policy, TimePoint start, int items, Duration service) {
  policy.dispatched(start, items);
  policy.completed(start + service, static_cast<std::size_t>(items), service, items);
  return start + service;
}

inline void arrive(BatchPolicy& policy, TimePoint at, int requests) {
  for (int request = 0; request < requests; ++request) policy.arrived(at);
}

// Runs `clients` that all return `think` after each result, until the policy has learned it. Returns when the last
// batch completed. Equal batches of 8 ms give a fixed cost of 8 ms and a watch of 2 ms.
inline constexpr Duration kService = milliseconds(8);
inline constexpr Duration kWatch = kService / 4;

inline TimePoint teach_returns(BatchPolicy& policy, int clients, int returning, Duration think) {
  TimePoint now = kStart;
  for (int round = 0; round < 40; ++round) {
    now = run_batch(policy, now, clients, kService);
    if (round == 39) break;
    arrive(policy, now + think, returning);
    now += milliseconds(20);
  }
  return now;
}

inline constexpr Duration kThink = microseconds(200);
inline constexpr Duration kLinger = 2 * kThink + BatchPolicy::kTick;

}  // namespace service_streamer::policy_tests
