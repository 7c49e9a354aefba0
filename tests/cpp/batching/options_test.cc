#include "service_streamer/batching/options.h"

#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>
#include <string>

#include "service_streamer/batching/engine.h"

namespace service_streamer {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::string complaint_about(const EngineOptions& options) {
  try {
    options.validated();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "none";
}

TEST(EngineOptions, AcceptsItsDefaults) {
  const EngineOptions options = EngineOptions{}.validated();
  EXPECT_EQ(options.batch_size, 64U);
  EXPECT_EQ(options.max_latency, milliseconds(100));
  EXPECT_EQ(options.policy, PolicyKind::kAdaptive);
  EXPECT_EQ(options.workers, 1);
  EXPECT_EQ(options.overflow, Overflow::kBlock);
}

TEST(EngineOptions, AMaxQueueOfZeroMeans1024Batches) {
  EXPECT_EQ(EngineOptions{.batch_size = 10}.validated().max_queue, 10'240U);
  EXPECT_EQ((EngineOptions{.batch_size = 10, .max_queue = 7}.validated().max_queue), 7U);
}

TEST(EngineOptions, AHugeBatchSizeDoesNotShrinkTheQueue) {
  constexpr auto kMost = std::numeric_limits<std::size_t>::max();
  for (const std::size_t batch_size : {kMost, kMost / 2, kMost / 1024 + 1, kMost / 512 + 1, kMost / 1024 + 2}) {
    EXPECT_GE(EngineOptions{.batch_size = batch_size}.validated().max_queue, batch_size);
  }
}

TEST(EngineOptions, AcceptsTheMinimumValues) {
  const EngineOptions least{.batch_size = 1, .max_latency = Duration::zero(), .workers = 1, .max_queue = 1};
  EXPECT_EQ(complaint_about(least), "none");
}

TEST(EngineOptions, TheErrorNamesTheFieldAndTheValue) {
  EXPECT_EQ(complaint_about({.batch_size = 0}), "batch_size must be at least 1, got 0");
  EXPECT_EQ(complaint_about({.max_latency = Duration(-5)}), "max_latency must be at least 0 ns, got -5");
  EXPECT_EQ(complaint_about({.workers = 0}), "workers must be at least 1, got 0");
  EXPECT_EQ(complaint_about({.workers = -3}), "workers must be at least 1, got -3");
}

TEST(EngineOptions, GivesThePolicyItsOptions) {
  const EngineOptions options{
      .batch_size = 9, .max_latency = milliseconds(3), .policy = PolicyKind::kWindow, .workers = 2};
  const BatchPolicy::Options policy = options.policy_options();
  EXPECT_EQ(policy.kind, PolicyKind::kWindow);
  EXPECT_EQ(policy.batch_size, 9U);
  EXPECT_EQ(policy.max_latency, milliseconds(3));
  EXPECT_EQ(policy.workers, 2);
}

TEST(EngineOptions, AnEngineRefusesInvalidOptionsAndKeepsItsOwn) {
  EXPECT_THROW(Engine({.batch_size = 0}), std::invalid_argument);
  Engine engine({.batch_size = 4});
  EXPECT_THROW(engine.configure({.batch_size = 0}), std::invalid_argument);
  EXPECT_THROW(engine.configure({.max_latency = Duration(-1)}), std::invalid_argument);
  EXPECT_THROW(engine.configure({.slo = Duration(-1)}), std::invalid_argument);
  EXPECT_EQ(engine.options().batch_size, 4U);
  EXPECT_EQ(engine.options().max_latency, milliseconds(100));
}

TEST(EngineOptions, ConfigureChangesOnlyWhatItIsGiven) {
  Engine engine({.batch_size = 4, .workers = 2, .max_queue = 50, .overflow = Overflow::kReject});
  engine.configure({.batch_size = 8, .max_latency = milliseconds(7), .policy = PolicyKind::kGreedy, .slo = seconds(1)});
  const EngineOptions now = engine.options();
  EXPECT_EQ(now.batch_size, 8U);
  EXPECT_EQ(now.max_latency, milliseconds(7));
  EXPECT_EQ(now.policy, PolicyKind::kGreedy);
  EXPECT_EQ(now.slo, seconds(1));
  EXPECT_EQ(now.workers, 2);
  EXPECT_EQ(now.max_queue, 50U);
  EXPECT_EQ(now.overflow, Overflow::kReject);
}

TEST(EngineOptions, ConfigureDoesNotChangeFieldsWithoutAValue) {
  Engine engine({.batch_size = 4, .max_latency = milliseconds(3), .policy = PolicyKind::kWindow});
  engine.configure({.max_latency = milliseconds(7)});
  engine.configure({});
  const EngineOptions now = engine.options();
  EXPECT_EQ(now.batch_size, 4U);
  EXPECT_EQ(now.max_latency, milliseconds(7));
  EXPECT_EQ(now.policy, PolicyKind::kWindow);
}

}  // namespace
}  // namespace service_streamer
