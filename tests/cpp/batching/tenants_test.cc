// Fair shares of tenants. Bounds and the waiting room are compared with plain lists in tenants_random_test.cc.

#include "service_streamer/batching/tenants.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "batching/request_queue_testing.h"
#include "service_streamer/batching/request_queue.h"

namespace service_streamer {
namespace {

using Counts = std::map<std::string, std::size_t, std::less<>>;

class TenantsTest : public testing::Test, protected Requests {
 protected:
  int next_arrival() { return ++clock_; }

  Request& pushed(const std::string& tenant, std::uint32_t size = 1, int priority = 0) {
    Request& request = make_of(tenant, size, priority, ++clock_);
    queue.push(request);
    return request;
  }

  void flood(const std::string& tenant, int requests, std::uint32_t size = 1) {
    for (int i = 0; i < requests; ++i) pushed(tenant, size);
  }

  // The number of items that each tenant gets in the next `items`.
  Counts next(std::uint32_t items) {
    Counts counts;
    while (items > 0) {
      const RequestRange range = take(queue, items);
      counts[std::string(range.request->tenant())] += range.count;
      items -= range.count;
    }
    return counts;
  }

  const TenantShares shares{.named = {{"triple", 3}, {"half", 0.5}}, .others = 1};
  RequestQueue queue{{.max_items = 1'000'000}, shares};

 private:
  int clock_ = 0;
};

TEST_F(TenantsTest, ABacklogIsDividedByTheShares) {
  for (const char* tenant : {"one", "triple", "half"}) flood(tenant, 200);
  EXPECT_EQ(next(90), (Counts{{"one", 20}, {"triple", 60}, {"half", 10}}));
}

TEST_F(TenantsTest, ARequestThatIsTakenBackCostsTheTenantNothing) {
  for (const char* tenant : {"one", "two"}) flood(tenant, 100);
  for (int i = 0; i < 10; ++i) {
    Request& request = *take(queue, 1).request;
    EXPECT_EQ(request.tenant(), "one");
    queue.push_again(request);
  }
  EXPECT_EQ(next(20), (Counts{{"one", 10}, {"two", 10}}));
}

TEST_F(TenantsTest, IdleTenantsAreForgottenAndOfThoseThatAreAheadAllButSome) {
  for (const bool ahead : {false, true}) {
    Tenants tenants(shares);
    Request& stays = make(1);  // so the others are ahead
    if (ahead) {
      tenants.prepare(stays);
      tenants.add(stays);
    }
    for (int i = 0; i < 100'000; ++i) {
      Request& request = make_of("name " + std::to_string(i), 1);
      tenants.prepare(request);
      tenants.add(request);
      request.phase = Request::Phase::kQueued;
      tenants.charge(request, 1, true);
      tenants.remove(request);
    }
    EXPECT_LE(tenants.remembered(), ahead ? 3000U : 64U);
    EXPECT_EQ(tenants.empty(), !ahead);
  }
}

TEST_F(TenantsTest, CountsWhatGoesBeforeANewRequest) {
  EXPECT_EQ(queue.items_before(make_of("one", 5)), 0U);
  flood("one", 100);
  flood("", 7);
  EXPECT_EQ(queue.items_before(make_of("one", 1)), 107U);
  EXPECT_EQ(queue.items_before(make_of("two", 2)), 4U) << "two of each";
  EXPECT_EQ(queue.items_before(make_of("triple", 6)), 4U);
  EXPECT_EQ(queue.items_before(make_of("two", 20)), 27U);
}

TEST_F(TenantsTest, TheLargestAreNamed) {
  for (int i = 1; i <= 5; ++i) flood("t" + std::to_string(i), i);
  pushed("t3", 4, 1);
  flood("", 10);
  EXPECT_EQ(queue.largest_tenants(2), (std::map<std::string, std::uint64_t>{{"t3", 7}, {"t5", 5}}));
  EXPECT_EQ(queue.largest_tenants(20).size(), 5U);
}

TEST_F(TenantsTest, ABatchOfOneKeyIsFairToo) {
  const auto with_key = [this](const std::string& tenant, std::uint64_t key) -> Request& {
    Request& request = make_of(tenant, 1, 0, next_arrival());
    request.traits = std::make_shared<ItemTraits>(ItemTraits{.keys = {key}, .weights = {}, .tenant = tenant});
    return request;
  };
  for (int i = 0; i < 20; ++i) queue.push(with_key("one", 1));
  queue.push(with_key("one", 2));
  for (int i = 0; i < 20; ++i) queue.push(with_key("triple", 1));
  Counts counts;
  for (int i = 0; i < 16; ++i) {
    Request* request = queue.next_alike(1);
    ++counts[std::string(request->tenant())];
    queue.take(*request, 1);
  }
  EXPECT_EQ(counts, (Counts{{"one", 4}, {"triple", 12}}));
  EXPECT_EQ(queue.next_alike(2)->tenant(), "one");
  while (!queue.empty()) take(queue, 1);
}

}  // namespace
}  // namespace service_streamer
