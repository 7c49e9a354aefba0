// Tenants that share an engine: how long one waits beside the flood of another, and what is refused.

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "support/call.h"

namespace service_streamer::support {
namespace {

using Admission = Engine::Admission;
using Counts = std::map<std::string, std::uint32_t, std::less<>>;

constexpr EngineOptions kGreedy{.batch_size = 64, .policy = PolicyKind::kGreedy, .max_queue = 1'000'000};

CallPtr call_of_tenant(const std::string& tenant, std::uint32_t items = 1, const Terms& terms = {}) {
  const CallPtr call = make_call(items, terms);
  call->traits = std::make_shared<ItemTraits>(ItemTraits{.keys = {}, .weights = {}, .tenant = tenant});
  return call;
}

CallPtr submitted_by(const std::string& tenant, Engine& engine, std::uint32_t items = 1, const Terms& terms = {}) {
  const CallPtr call = call_of_tenant(tenant, items, terms);
  EXPECT_EQ(submit(engine, call), Admission::kQueued);
  return call;
}

// The items of each tenant in the next batch.
Counts served(Engine& engine) {
  Batch batch = take(engine);
  Counts counts;
  for (const RequestRange& range : batch.ranges) counts[std::string(range.request->tenant())] += range.count;
  answer(engine, batch);
  return counts;
}

TEST(EngineTenants, ACallerIsInTheNextBatchBesideAFlood) {
  Engine engine(kGreedy);
  std::vector<CallPtr> flood;
  for (int i = 0; i < 10'000; ++i) flood.push_back(submitted_by("flood", engine, 10));
  for (int i = 0; i < 20; ++i) {
    Batch before = take(engine);
    const CallPtr single = submitted_by("single", engine);
    answer(engine, before);
    Batch next = take(engine);
    EXPECT_EQ(next.items, 64U);
    answer(engine, next);
    EXPECT_TRUE(single->answered());
  }
  abort(engine);
}

TEST(EngineTenants, OnlyTenantsWithAShareOfTheirOwnAreCountedByName) {
  Engine engine(kGreedy, {.named = {{"large", 3}, {"idle", 1}}, .others = 1});
  std::vector<CallPtr> calls;
  for (const char* tenant : {"large", "small", "other", ""}) calls.push_back(submitted_by(tenant, engine, 2));
  const auto names = [](const EngineStats& stats) {
    std::vector<std::string> found;
    for (const auto& [name, tenant] : stats.tenant_stats) found.push_back(name);
    return found;
  };
  EngineStats stats = engine.stats();
  EXPECT_EQ(names(stats), (std::vector<std::string>{"*", "idle", "large"}));
  EXPECT_EQ(stats.tenant_stats["large"].queued_items, 2U);
  EXPECT_EQ(stats.tenant_stats["*"].queued_items, 6U);
  served(engine);
  stats = engine.stats();
  EXPECT_EQ(stats.tenant_stats["large"].counts.completed, 1U);
  EXPECT_EQ(stats.tenant_stats["*"].counts.completed, 3U);
  EXPECT_EQ(stats.tenant_stats["*"].queued_items + stats.tenant_stats["idle"].counts.completed, 0U);
  EXPECT_TRUE(names(Engine(kGreedy).stats()).empty());
}

TEST(EngineTenants, ATenantThatIsFullIsRefusedAndLearnsWhenToTryAgain) {
  EngineOptions options = kGreedy;
  options.max_queue_per_tenant = 64;
  options.overflow = Overflow::kReject;
  Engine engine(options);
  const CallPtr running = submitted_by("one", engine);
  serve_all(engine);
  const CallPtr first = submitted_by("one", engine, 64);
  const CallPtr refused = call_of_tenant("one");
  EXPECT_EQ(submit(engine, refused), Admission::kTenantFull);
  EXPECT_GT(engine.retry_after(*refused), 0);
  const CallPtr other = submitted_by("two", engine);
  EXPECT_LT(engine.retry_after(*call_of_tenant("three")), engine.retry_after(*refused));
  EXPECT_EQ(engine.stats().counters.rejected, 1U);
  serve_all(engine);
}

TEST(EngineTenants, KnowsTheTenantsThatHaveAShare) {
  Engine engine(kGreedy, {.named = {{"one", 1}}, .others = std::nullopt});
  EXPECT_TRUE(engine.knows_tenant(*call_of_tenant("one")));
  EXPECT_FALSE(engine.knows_tenant(*call_of_tenant("two")));
  EXPECT_TRUE(engine.knows_tenant(*make_call(1))) << "the common tenant";
  EXPECT_TRUE(Engine(kGreedy).knows_tenant(*call_of_tenant("two")));
}

}  // namespace
}  // namespace service_streamer::support
