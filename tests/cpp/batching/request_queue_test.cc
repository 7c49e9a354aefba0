#include "service_streamer/batching/request_queue.h"

#include <gtest/gtest.h>

#include "batching/request_queue_testing.h"

namespace service_streamer {
namespace {

// The order, the bounds and the waiting room are compared with plain lists in request_queue_random_test.cc.
class RequestQueueTest : public ::testing::Test, protected Requests {
 protected:
  Request& pushed(std::uint32_t size, int priority = 0) {
    Request& request = make(size, priority);
    queue.push(request);
    return request;
  }

  RequestQueue queue{{.max_items = 10}};
};

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

TEST_F(RequestQueueTest, RemovingARequestThatIsNotQueuedDoesNothing) {
  Request& stays = pushed(1);
  Request& taken = pushed(1, 1);
  take(queue, 1);
  queue.remove(taken);
  queue.remove(make(1));
  EXPECT_EQ(queue.items(), 1U);
  EXPECT_EQ(&queue.front(), &stays);
}

}  // namespace
}  // namespace service_streamer
