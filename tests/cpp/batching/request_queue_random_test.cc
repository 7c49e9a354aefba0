#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <vector>

#include "batching/request_queue_testing.h"
#include "service_streamer/batching/request_queue.h"
#include "simulation/random.h"

namespace service_streamer {
namespace {

using Phase = Request::Phase;

// A plain list that is searched from end to end, to compare the queue with.
class PlainQueue {
 public:
  PlainQueue(std::size_t max_items, int ageing) : max_items_(max_items), ageing_(ageing) {}

  static std::uint32_t left(const Request* request) { return request->size - request->dispatched; }

  bool has_room(const Request& request) const {
    const auto goes_first = [&](const Request* other) { return turn(other) < turn(&request); };
    return std::ranges::none_of(waiting, goes_first) && fits(request);
  }

  bool fits(const Request& request) const {
    std::size_t ahead = 0;
    for (const Request* other : queued) ahead += other->priority >= request.priority ? left(other) : 0;
    return ahead == 0 || ahead + request.size <= max_items_;
  }

  std::tuple<std::int64_t, int, std::int64_t> turn(const Request* request) const {
    const auto arrived = request->arrived.time_since_epoch().count();
    return {ageing_ == 0 ? 0 : arrived - request->priority * std::int64_t{ageing_}, -request->priority, arrived};
  }

  std::vector<Request*>::iterator next() {
    return std::ranges::min_element(queued, {}, [this](const Request* request) { return turn(request); });
  }

  // The request that admit() should return.
  Request* next_waiting() const {
    const auto first = std::ranges::min_element(waiting, {}, [this](const Request* request) { return turn(request); });
    return first != waiting.end() && fits(**first) ? *first : nullptr;
  }

  std::vector<Request*> queued;
  std::vector<Request*> waiting;

 private:
  const std::size_t max_items_;
  const int ageing_;  // 0: none
};

class RandomQueueTest : public testing::TestWithParam<int>, protected Requests {};

TEST_P(RandomQueueTest, BehavesAsAPlainList) {
  simulation::Random random(3);
  RequestQueue queue({.max_items = 30, .ageing = GetParam() == 0 ? Duration::max() : Duration(GetParam())});
  PlainQueue plain(30, GetParam());
  for (int step = 0; step < 20'000; ++step) {
    const int what = random.between(0, 9);
    if (what < 5) {
      const int size = random.between(1, random.uniform() < 0.9 ? 12 : 40);  // some are larger than the bound
      Request& request = make(static_cast<std::uint32_t>(size), random.between(-10, 10), step);
      const bool room = plain.has_room(request);
      ASSERT_EQ(queue.has_room(request), room);
      room ? queue.push(request) : queue.push_waiting(request);
      (room ? plain.queued : plain.waiting).push_back(&request);
    } else if (what < 8 && !plain.queued.empty()) {
      const auto next = plain.next();
      Request* expected = *next;
      const std::uint32_t begin = expected->dispatched;
      const auto limit = static_cast<std::uint32_t>(random.between(1, 6));
      const std::uint32_t count = std::min(limit, PlainQueue::left(expected));
      ASSERT_EQ(&queue.front(), expected);
      const RequestRange range = take(queue, limit);
      ASSERT_EQ(range.request, expected);
      ASSERT_EQ(range.begin, begin);
      ASSERT_EQ(range.count, count);
      ASSERT_EQ(expected->phase, PlainQueue::left(expected) == 0 ? Phase::kDispatched : Phase::kQueued);
      if (PlainQueue::left(expected) == 0) plain.queued.erase(next);
    } else if (what == 8) {
      auto& from = random.uniform() < 0.5 ? plain.queued : plain.waiting;
      if (from.empty()) continue;
      const auto one = from.begin() + random.between(0, static_cast<int>(from.size()) - 1);
      queue.remove(**one);
      (*one)->phase = Phase::kEnded;
      from.erase(one);
    } else {
      Request* expected = plain.next_waiting();
      ASSERT_EQ(queue.admit(), expected);
      if (expected == nullptr) continue;
      plain.queued.push_back(expected);
      std::erase(plain.waiting, expected);
    }
    std::size_t items = 0;
    TimePoint oldest = TimePoint::max();
    int top_priority = -100;
    for (const Request* request : plain.queued) {
      items += PlainQueue::left(request);
      oldest = std::min(oldest, request->arrived);
      top_priority = std::max(top_priority, request->priority);
    }
    ASSERT_EQ(queue.items(), items);
    ASSERT_EQ(queue.oldest(), oldest);
    if (!plain.queued.empty()) {
      ASSERT_EQ(queue.top_priority(), top_priority);
    }
    ASSERT_EQ(queue.requests(), static_cast<int>(plain.queued.size()));
    ASSERT_EQ(queue.waiting(), static_cast<int>(plain.waiting.size()));
    ASSERT_EQ(queue.empty(), plain.queued.empty() && plain.waiting.empty());
  }
}

INSTANTIATE_TEST_SUITE_P(Ageing, RandomQueueTest, testing::Values(0, 7, 100));

}  // namespace
}  // namespace service_streamer
