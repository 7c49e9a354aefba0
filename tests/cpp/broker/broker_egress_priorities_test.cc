// Which requests leave a process first.

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include "support/broker_egress.h"

namespace service_streamer::support {
namespace {

TEST_F(BrokerEgressTest, ALargeRequestOfALowPriorityIsOvertaken) {
  const RemoteRequest bulk = sent(engine, std::vector<int>(12, 1), {.priority = -1});
  std::vector<Chunk> all = take(1).chunks;
  const RemoteRequest urgent = sent(engine, {2}, {.priority = 1});
  for (const int priority : {1, -1, -1}) {
    const Taken taken = take(1);
    ASSERT_EQ(taken.chunks.size(), 1U);
    EXPECT_EQ(taken.chunks.front().priority, priority);
    all.push_back(taken.chunks.front());
  }
  for (const Chunk& chunk : all) EXPECT_TRUE(answer(out(), chunk));
  EXPECT_TRUE(bulk.answered());
  EXPECT_TRUE(urgent.answered());
}

TEST_F(BrokerEgressTest, LowPrioritiesAreHeldBackOnRequest) {
  const auto take_from = [&](std::int64_t least_priority, TimePoint deadline) {
    Taken taken;
    egress->take(kPlenty, deadline, taken, least_priority);
    return taken.chunks;
  };
  const RemoteRequest begun = sent(engine, std::vector<int>(8, 1), {.priority = -1});
  std::vector<Chunk> all = take(1).chunks;
  const RemoteRequest bulk = sent(engine, {1}, {.priority = -1});
  EXPECT_TRUE(take_from(0, Clock::now()).empty()) << "neither the rest of a request nor a whole one";
  std::optional<RemoteRequest> urgent;
  std::jthread sender([&] { urgent.emplace(sent(engine, {2})); });
  const std::vector<Chunk> woken = take_from(0, soon());
  sender.join();
  ASSERT_EQ(woken.size(), 1U);
  EXPECT_EQ(woken.front().priority, 0);
  all.push_back(woken.front());
  const std::vector<Chunk> rest = take_from(kAnyPriority, soon());
  EXPECT_EQ(rest.size(), 2U);
  all.insert(all.end(), rest.begin(), rest.end());
  for (const Chunk& chunk : all) EXPECT_TRUE(answer(out(), chunk));
  EXPECT_TRUE(begun.answered() && bulk.answered() && urgent->answered());
}

}  // namespace
}  // namespace service_streamer::support
