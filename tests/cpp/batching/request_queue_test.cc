#include "service_streamer/batching/request_queue.h"

#include <gtest/gtest.h>

#include <vector>

#include "batching/request_queue_testing.h"

namespace service_streamer {
namespace {

using Phase = Request::Phase;

class RequestQueueTest : public ::testing::Test, protected Requests {
 protected:
  Request& pushed(std::uint32_t size, int priority = 0, int arrived = 0) {
    Request& request = make(size, priority, arrived);
    queue.push(request);
    return request;
  }

  Request& waiting(std::uint32_t size) {
    Request& request = make(size);
    queue.push_waiting(request);
    return request;
  }

  RequestQueue queue{{.max_items = 10}};
};

TEST_F(RequestQueueTest, IsEmptyAtFirst) {
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.items(), 0U);
  EXPECT_EQ(queue.requests(), 0);
  EXPECT_EQ(queue.waiting(), 0);
  EXPECT_EQ(queue.max_items(), 10U);
  EXPECT_EQ(queue.admit(), nullptr);
}

TEST_F(RequestQueueTest, IsFirstInFirstOut) {
  Request& first = pushed(2);
  Request& second = pushed(3);
  EXPECT_EQ(queue.items(), 5U);
  EXPECT_EQ(queue.requests(), 2);
  EXPECT_EQ(take(queue, 10).request, &first);
  EXPECT_EQ(take(queue, 10).request, &second);
  EXPECT_TRUE(queue.empty());
}

TEST_F(RequestQueueTest, HigherPrioritiesGoFirst) {
  Request& low = pushed(1, -1);
  Request& normal = pushed(1, 0);
  Request& high = pushed(1, 7);
  Request& second_high = pushed(1, 7);
  std::vector<Request*> order;
  std::vector<int> tops;
  while (!queue.empty()) {
    tops.push_back(queue.top_priority());
    order.push_back(take(queue, 1).request);
  }
  EXPECT_EQ(order, (std::vector<Request*>{&high, &second_high, &normal, &low}));
  EXPECT_EQ(tops, (std::vector<int>{7, 7, 0, -1}));
}

TEST_F(RequestQueueTest, WithAgeingARequestThatHasWaitedLongEnoughGoesFirst) {
  RequestQueue ageing({.max_items = 100, .ageing = Duration(10)});
  Request& low = make(1, -1, 0);
  Request& early = make(1, 1, 15);
  Request& late = make(1, 1, 25);
  Request& next_low = make(1, -1, 1);
  for (Request* request : {&low, &early, &late, &next_low}) ageing.push(*request);
  std::vector<Request*> order;
  while (!ageing.empty()) order.push_back(take(ageing, 1).request);
  EXPECT_EQ(order, (std::vector<Request*>{&early, &low, &next_low, &late}));
}

TEST_F(RequestQueueTest, ExpectsAHigherPriorityForSomeSecondsAfterTheLastOne) {
  const TimePoint now{std::chrono::hours(1)};
  pushed(1, 0).arrived = now;
  EXPECT_FALSE(queue.expects_higher_priority(now));
  Request& high = make(1, 1);
  high.arrived = now;
  queue.push(high);
  EXPECT_FALSE(queue.expects_higher_priority(now)) << "it is in the queue";
  take(queue, 1);
  EXPECT_TRUE(queue.expects_higher_priority(now));
  EXPECT_FALSE(queue.expects_higher_priority(now + std::chrono::minutes(1)));
}

TEST_F(RequestQueueTest, ARequestThatIsCutStaysInFront) {
  Request& large = pushed(7, 0);
  pushed(1, 0);
  for (const std::uint32_t begin : {0U, 3U}) {
    const RequestRange range = take(queue, 3);
    EXPECT_EQ(range.request, &large);
    EXPECT_EQ(range.begin, begin);
    EXPECT_EQ(range.count, 3U);
    EXPECT_FALSE(range.failed);
    EXPECT_EQ(large.phase, Phase::kQueued);
  }
  EXPECT_EQ(queue.items(), 2U);
  EXPECT_EQ(queue.requests(), 2);
  const RequestRange last = take(queue, 3);
  EXPECT_EQ(last.begin, 6U);
  EXPECT_EQ(last.count, 1U);
  EXPECT_EQ(large.phase, Phase::kDispatched);
  EXPECT_EQ(queue.requests(), 1);
}

TEST_F(RequestQueueTest, HasRoomExactlyUpToTheBound) {
  pushed(6);
  EXPECT_TRUE(queue.has_room(make(4)));
  EXPECT_FALSE(queue.has_room(make(5)));
}

TEST_F(RequestQueueTest, HasRoomForALargerRequestOnlyIfItIsEmpty) {
  EXPECT_TRUE(queue.has_room(make(1000)));
  Request& small = pushed(1);
  EXPECT_FALSE(queue.has_room(make(1000)));
  queue.remove(small);
  EXPECT_TRUE(queue.has_room(make(1000)));
}

TEST_F(RequestQueueTest, HasNoRoomWhileARequestIsInTheWaitingRoom) {
  Request& first = waiting(1);
  EXPECT_FALSE(queue.has_room(make(1)));
  queue.remove(first);
  EXPECT_TRUE(queue.has_room(make(1)));
}

TEST_F(RequestQueueTest, LowPrioritiesNeverKeepOutAHighOne) {
  pushed(10, -1);
  Request& low = make(1, -1);
  Request& normal = make(10, 0);
  EXPECT_FALSE(queue.has_room(low));
  queue.push_waiting(low);
  EXPECT_TRUE(queue.has_room(normal));
  queue.push(normal);
  EXPECT_FALSE(queue.has_room(make(1, 0)));
  EXPECT_TRUE(queue.has_room(make(1, 1)));
  take(queue, 10);
  EXPECT_EQ(queue.admit(), nullptr) << "the first ten of the low priority are still there";
}

TEST_F(RequestQueueTest, AdmitsTheHighestPriorityFirst) {
  pushed(10, 5);
  Request& normal = make(1, 0);
  Request& high = make(10, 1);
  for (Request* request : {&normal, &high}) queue.push_waiting(*request);
  take(queue, 9);
  EXPECT_EQ(queue.admit(), nullptr) << "the smaller one must not overtake";
  take(queue, 1);
  EXPECT_EQ(queue.admit(), &high);
}

TEST_F(RequestQueueTest, WithAgeingTheWaitingRoomHasTheOrderOfTheQueue) {
  RequestQueue ageing({.max_items = 1, .ageing = Duration(10)});
  ageing.push(make(1, 5));
  Request& low = make(1, 0, 0);
  Request& early = make(1, 1, 5);
  for (Request* request : {&low, &early}) ageing.push_waiting(*request);
  take(ageing, 1);
  EXPECT_FALSE(ageing.has_room(make(1, 1, 20))) << "both waiting ones go before it";
  EXPECT_EQ(ageing.admit(), &early);
  Request& late = make(1, 1, 20);
  ageing.push_waiting(late);
  take(ageing, 1);
  EXPECT_EQ(ageing.admit(), &low);
}

TEST_F(RequestQueueTest, TheBoundCountsItemsThatAreNotInABatch) {
  pushed(10);
  EXPECT_FALSE(queue.has_room(make(1)));
  take(queue, 3);
  EXPECT_TRUE(queue.has_room(make(3)));
  EXPECT_FALSE(queue.has_room(make(4)));
}

TEST_F(RequestQueueTest, AdmitsStrictlyInOrder) {
  pushed(8);
  Request& large = waiting(5);
  Request& small = waiting(1);
  EXPECT_EQ(queue.admit(), nullptr) << "the small request must not overtake";
  take(queue, 3);
  EXPECT_EQ(queue.admit(), &large);
  EXPECT_EQ(large.phase, Phase::kQueued);
  EXPECT_EQ(queue.admit(), nullptr);
  EXPECT_EQ(small.phase, Phase::kWaiting);
  EXPECT_EQ(queue.waiting(), 1);
  take(queue, 1);
  EXPECT_EQ(queue.admit(), &small);
  EXPECT_EQ(queue.waiting(), 0);
}

TEST_F(RequestQueueTest, AdmitsARequestLargerThanTheBoundIntoAnEmptyQueue) {
  pushed(1);
  Request& large = waiting(11);
  EXPECT_EQ(queue.admit(), nullptr);
  take(queue, 1);
  EXPECT_FALSE(queue.empty()) << "the waiting room counts";
  EXPECT_EQ(queue.admit(), &large);
  EXPECT_EQ(queue.items(), 11U);
}

TEST_F(RequestQueueTest, RemovesFromTheQueueAndTheWaitingRoom) {
  Request& first = pushed(2);
  Request& middle = pushed(3);
  Request& last = pushed(4);
  Request& outside = waiting(9);
  Request& outside_last = waiting(9);
  queue.remove(middle);
  EXPECT_EQ(queue.items(), 6U);
  EXPECT_EQ(queue.requests(), 2);
  queue.remove(outside);
  EXPECT_EQ(queue.waiting(), 1);
  EXPECT_EQ(take(queue, 9).request, &first);
  EXPECT_EQ(take(queue, 9).request, &last);
  EXPECT_EQ(queue.admit(), &outside_last);
}

TEST_F(RequestQueueTest, RemovesTheRestOfARequestThatIsCut) {
  Request& request = pushed(8);
  take(queue, 3);
  EXPECT_EQ(queue.items(), 5U);
  queue.remove(request);
  EXPECT_EQ(queue.items(), 0U);
  EXPECT_TRUE(queue.empty());
}

TEST_F(RequestQueueTest, RemovingARequestThatIsNotQueuedDoesNothing) {
  Request& stays = pushed(1);
  Request& taken = pushed(1, 1);
  take(queue, 1);
  queue.remove(taken);
  queue.remove(make(1));
  EXPECT_EQ(queue.items(), 1U);
  EXPECT_EQ(&queue.front(), &stays);
}

TEST_F(RequestQueueTest, OldestIsTheEarliestArrivalOfAllPriorities) {
  pushed(1, 5, 30);
  Request& old = pushed(1, -5, 10);
  pushed(1, 0, 20);
  EXPECT_EQ(queue.oldest(), TimePoint(Duration(10)));
  queue.remove(old);
  EXPECT_EQ(queue.oldest(), TimePoint(Duration(20)));
}

}  // namespace
}  // namespace service_streamer
