// Fair shares of tenants: which request goes first, and which ones wait for room.

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
  explicit TenantsTest(const RequestQueue::Options& options = {.max_items = 1'000'000}) : queue(options, shares) {}

  int next_arrival() { return ++clock_; }

  Request& pushed(const std::string& tenant, std::uint32_t size = 1, int priority = 0) {
    Request& request = make_of(tenant, size, priority, ++clock_);
    queue.push(request);
    return request;
  }

  Request& waiting(const std::string& tenant, std::uint32_t size = 1) {
    Request& request = make_of(tenant, size, 0, ++clock_);
    EXPECT_FALSE(queue.has_room(request));
    queue.push_waiting(request);
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
  RequestQueue queue;

 private:
  int clock_ = 0;
};

TEST_F(TenantsTest, TheFirstRequestOfATenantGoesBeforeTheBacklogOfAnother) {
  Request& first = pushed("bulk", 100);
  flood("bulk", 10);
  Request& other = pushed("other");
  EXPECT_EQ(take(queue, 1).request, &other) << "of tenants that have got the same, the one with fewer items";
  Request& next = pushed("other");
  EXPECT_EQ(take(queue, 100).request, &first);
  EXPECT_EQ(take(queue, 1).request, &next);
}

TEST_F(TenantsTest, RequestsWithoutATenantAreOfACommonOne) {
  flood("", 10);
  take(queue, 1);
  Request& other = pushed("other");
  EXPECT_EQ(&queue.front(), &other);
  EXPECT_EQ(next(8), (Counts{{"", 7}, {"other", 1}}));
}

TEST_F(TenantsTest, ABacklogIsDividedByTheShares) {
  for (const char* tenant : {"one", "triple", "half"}) flood(tenant, 200);
  EXPECT_EQ(next(90), (Counts{{"one", 20}, {"triple", 60}, {"half", 10}}));
}

TEST_F(TenantsTest, ItemsCountAndNotRequests) {
  flood("large", 10, 30);
  flood("small", 300);
  const Counts counts = next(300);
  EXPECT_NEAR(static_cast<double>(counts.at("large")), 150, 30) << "30: a request is taken as a whole if there is room";
}

TEST_F(TenantsTest, AnIdleTenantSavesNothingUp) {
  flood("one", 500);
  flood("two", 1);
  next(400);
  flood("two", 500);
  const Counts counts = next(100);
  EXPECT_NEAR(static_cast<double>(counts.at("two")), 50, 1);
}

TEST_F(TenantsTest, ATenantThatIsAheadStaysAheadWhileItIsIdle) {
  flood("one", 100);
  pushed("two", 50);
  next(60);
  flood("two", 100);
  EXPECT_EQ(next(40).at("one"), 40U) << "it has got 10 until now, and the other one 50";
  EXPECT_EQ(next(10), (Counts{{"one", 5}, {"two", 5}}));
}

TEST_F(TenantsTest, RequestsThatLeaveCostTheTenantNothing) {
  std::vector<Request*> cancelled;
  for (int i = 0; i < 100; ++i) cancelled.push_back(&pushed("one"));
  flood("one", 100);
  flood("two", 100);
  for (Request* request : cancelled) queue.remove(*request);
  EXPECT_EQ(next(20), (Counts{{"one", 10}, {"two", 10}}));
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

TEST_F(TenantsTest, EachPriorityHasSharesOfItsOwn) {
  flood("one", 100);
  next(50);
  Request& high = pushed("one", 1, 1);
  pushed("two", 1, 0);
  EXPECT_EQ(&queue.front(), &high);
}

TEST_F(TenantsTest, IdleTenantsAreForgotten) {
  Tenants tenants(shares);
  flood("one", 1);
  for (int i = 0; i < 100'000; ++i) {
    Request& request = make_of("name " + std::to_string(i), 1);
    tenants.prepare(request);
    tenants.add(request);
    request.phase = Request::Phase::kQueued;
    tenants.charge(request, 1, true);
    tenants.remove(request);
  }
  EXPECT_TRUE(tenants.empty());
  EXPECT_LE(tenants.remembered(), 64U);
}

TEST_F(TenantsTest, AlsoThoseThatAreAheadIfTheyAreMany) {
  Tenants tenants(shares);
  Request& stays = make(1);
  tenants.prepare(stays);
  tenants.add(stays);
  for (int i = 0; i < 100'000; ++i) {
    Request& request = make_of("name " + std::to_string(i), 1);
    tenants.prepare(request);
    tenants.add(request);
    request.phase = Request::Phase::kQueued;
    tenants.charge(request, 1, true);
    tenants.remove(request);
  }
  EXPECT_LE(tenants.remembered(), 3000U);
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

// --- the bound of a tenant ---

class BoundedTenantsTest : public TenantsTest {
 protected:
  BoundedTenantsTest() : TenantsTest({.max_items = 10, .max_items_per_tenant = 4}) {}
};

TEST_F(BoundedTenantsTest, ATenantHasRoomUpToItsBound) {
  flood("one", 3);
  EXPECT_TRUE(queue.has_room(make_of("one", 1)));
  EXPECT_FALSE(queue.has_room(make_of("one", 2)));
  EXPECT_FALSE(queue.tenant_has_room(make_of("one", 2)));
  EXPECT_TRUE(queue.has_room(make_of("two", 4)));
  EXPECT_TRUE(queue.has_room(make_of("three", 7))) << "it has nothing in the queue";
  EXPECT_FALSE(queue.has_room(make_of("three", 8))) << "the bound of all items";
  EXPECT_TRUE(queue.tenant_has_room(make_of("three", 8)));
  EXPECT_TRUE(queue.has_room(make_of("one", 4, 1))) << "lower priorities do not count";
  EXPECT_TRUE(queue.has_room(make(4))) << "the common tenant has the same bound";
  EXPECT_FALSE(queue.has_room(make_of("one", 2, -1))) << "higher priorities count";
}

TEST_F(BoundedTenantsTest, ATenantThatIsFullDoesNotHoldUpOthers) {
  flood("one", 4);
  Request& kept_out = waiting("one", 4);
  Request& small = waiting("one", 1);
  EXPECT_EQ(queue.admit(), nullptr);
  EXPECT_TRUE(queue.has_room(make_of("two", 4)));
  flood("two", 4);
  take(queue, 1);
  EXPECT_EQ(queue.admit(), nullptr) << "the small request must not overtake that of its own tenant";
  EXPECT_EQ(next(7).size(), 2U);
  EXPECT_EQ(queue.admit(), &kept_out);
  EXPECT_EQ(queue.admit(), nullptr);
  take(queue, 1);
  EXPECT_EQ(queue.admit(), &small);
}

TEST_F(BoundedTenantsTest, TheWaitingRoomIsFair) {
  for (const char* tenant : {"one", "two", ""}) flood(tenant, 3);
  waiting("three", 2);
  waiting("four", 2);
  next(3);
  std::vector<std::string> admitted;
  while (const Request* request = queue.admit()) admitted.emplace_back(request->tenant());
  EXPECT_EQ(admitted, (std::vector<std::string>{"three", "four"}));
}

// --- keys ---

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
