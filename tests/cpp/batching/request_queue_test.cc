#include "service_streamer/batching/request_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <vector>

#include "simulation/random.h"

namespace service_streamer {
namespace {

using Phase = Request::Phase;

// Makes requests, which live as long as the test.
class Requests {
 public:
  Request& make(std::uint32_t size, int priority = 0, int arrived = 0) {
    Request& request = requests_.emplace_back();
    request.size = size;
    request.priority = priority;
    request.arrived = TimePoint(Duration(arrived));
    return request;
  }

 private:
  std::deque<Request> requests_;
};

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

  RequestQueue queue{10};
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
  EXPECT_EQ(queue.take(10).request, &first);
  EXPECT_EQ(queue.take(10).request, &second);
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
    order.push_back(queue.take(1).request);
  }
  EXPECT_EQ(order, (std::vector<Request*>{&high, &second_high, &normal, &low}));
  EXPECT_EQ(tops, (std::vector<int>{7, 7, 0, -1}));
}

TEST_F(RequestQueueTest, ARequestThatIsCutStaysInFront) {
  Request& large = pushed(7, 0);
  pushed(1, 0);
  for (const std::uint32_t begin : {0U, 3U}) {
    const RequestRange range = queue.take(3);
    EXPECT_EQ(range.request, &large);
    EXPECT_EQ(range.begin, begin);
    EXPECT_EQ(range.count, 3U);
    EXPECT_FALSE(range.failed);
    EXPECT_EQ(large.phase, Phase::kQueued);
  }
  EXPECT_EQ(queue.items(), 2U);
  EXPECT_EQ(queue.requests(), 2);
  const RequestRange last = queue.take(3);
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

TEST_F(RequestQueueTest, TheBoundCountsItemsThatAreNotInABatch) {
  pushed(10);
  EXPECT_FALSE(queue.has_room(make(1)));
  queue.take(3);
  EXPECT_TRUE(queue.has_room(make(3)));
  EXPECT_FALSE(queue.has_room(make(4)));
}

TEST_F(RequestQueueTest, AdmitsStrictlyInOrder) {
  pushed(8);
  Request& large = waiting(5);
  Request& small = waiting(1);
  EXPECT_EQ(queue.admit(), nullptr) << "the small request must not overtake";
  queue.take(3);
  EXPECT_EQ(queue.admit(), &large);
  EXPECT_EQ(large.phase, Phase::kQueued);
  EXPECT_EQ(queue.admit(), nullptr);
  EXPECT_EQ(small.phase, Phase::kWaiting);
  EXPECT_EQ(queue.waiting(), 1);
  queue.take(1);
  EXPECT_EQ(queue.admit(), &small);
  EXPECT_EQ(queue.waiting(), 0);
}

TEST_F(RequestQueueTest, AdmitsARequestLargerThanTheBoundIntoAnEmptyQueue) {
  pushed(1);
  Request& large = waiting(11);
  EXPECT_EQ(queue.admit(), nullptr);
  queue.take(1);
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
  EXPECT_EQ(queue.take(9).request, &first);
  EXPECT_EQ(queue.take(9).request, &last);
  EXPECT_EQ(queue.admit(), &outside_last);
}

TEST_F(RequestQueueTest, RemovesTheRestOfARequestThatIsCut) {
  Request& request = pushed(8);
  queue.take(3);
  EXPECT_EQ(queue.items(), 5U);
  queue.remove(request);
  EXPECT_EQ(queue.items(), 0U);
  EXPECT_TRUE(queue.empty());
}

TEST_F(RequestQueueTest, RemovingARequestThatIsNotQueuedDoesNothing) {
  Request& stays = pushed(1);
  Request& taken = pushed(1, 1);
  queue.take(1);
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

// Compares it with a plain list that is searched from end to end.
TEST_F(RequestQueueTest, BehavesAsAPlainList) {
  simulation::Random random(3);
  std::vector<Request*> queued;
  std::vector<Request*> outside;
  const auto left = [](const Request* request) { return request->size - request->dispatched; };
  for (int step = 0; step < 50'000; ++step) {
    const int what = random.between(0, 9);
    std::size_t items = 0;
    for (const Request* request : queued) items += left(request);
    if (what < 5) {
      Request& request = make(static_cast<std::uint32_t>(random.between(1, 12)), random.between(-10, 10), step);
      const bool room = outside.empty() && (items == 0 || items + request.size <= queue.max_items());
      ASSERT_EQ(queue.has_room(request), room);
      room ? queue.push(request) : queue.push_waiting(request);
      (room ? queued : outside).push_back(&request);
    } else if (what < 8 && !queued.empty()) {
      const auto best = std::max_element(queued.begin(), queued.end(),
                                         [](const Request* a, const Request* b) { return a->priority < b->priority; });
      Request* expected = *best;  // the first of the highest priority
      const std::uint32_t begin = expected->dispatched;
      const auto limit = static_cast<std::uint32_t>(random.between(1, 6));
      const std::uint32_t count = std::min(limit, left(expected));
      ASSERT_EQ(&queue.front(), expected);
      const RequestRange range = queue.take(limit);
      ASSERT_EQ(range.request, expected);
      ASSERT_EQ(range.begin, begin);
      ASSERT_EQ(range.count, count);
      if (left(expected) == 0) queued.erase(best);
    } else if (what == 8) {
      auto& from = random.uniform() < 0.5 ? queued : outside;
      if (from.empty()) continue;
      const auto one = from.begin() + random.between(0, static_cast<int>(from.size()) - 1);
      queue.remove(**one);
      (*one)->phase = Phase::kEnded;
      from.erase(one);
    } else {
      const bool fits = !outside.empty() && (items == 0 || items + outside.front()->size <= queue.max_items());
      ASSERT_EQ(queue.admit(), fits ? outside.front() : nullptr);
      if (!fits) continue;
      queued.push_back(outside.front());
      outside.erase(outside.begin());
    }
    ASSERT_EQ(queue.requests(), static_cast<int>(queued.size()));
    ASSERT_EQ(queue.waiting(), static_cast<int>(outside.size()));
    ASSERT_EQ(queue.empty(), queued.empty() && outside.empty());
    if (queued.empty()) continue;
    const auto oldest = *std::min_element(queued.begin(), queued.end(),
                                          [](const Request* a, const Request* b) { return a->arrived < b->arrived; });
    ASSERT_EQ(queue.oldest(), oldest->arrived);
  }
}

}  // namespace
}  // namespace service_streamer
