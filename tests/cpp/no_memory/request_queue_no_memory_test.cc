// A queue of requests with keys for which there is no memory.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "batching/request_queue_testing.h"
#include "service_streamer/batching/request_queue.h"
#include "support/no_memory.h"

namespace service_streamer {
namespace {

using support::NoMemoryFor;

class QueueWithoutMemory : public testing::Test, protected Requests {
 protected:
  Request& with_keys(std::vector<std::uint64_t> keys, int priority = 0, const char* tenant = "") {
    Request& request = make(static_cast<std::uint32_t>(keys.size()), priority);
    request.traits = std::make_shared<ItemTraits>(ItemTraits{.keys = std::move(keys), .weights = {}, .tenant = tenant});
    return request;
  }
};

// Each size of an allocation fails once.
TEST_F(QueueWithoutMemory, ARequestIsQueuedOrNot) {
  int refused = 0;
  for (std::size_t size = 1; size < 400; ++size) {
    RequestQueue queue({.max_items = 10});
    queue.push(make(1));
    queue.push_waiting(make(1, -1));
    Request& request = with_keys({1, 2, 2, 3}, 1, "a name that needs an allocation");
    bool queued = true;
    {
      const NoMemoryFor one(size, size + 1);
      try {
        queue.push(request);
      } catch (const std::bad_alloc&) {
        queued = false;
      }
    }
    refused += queued ? 0 : 1;
    ASSERT_EQ(queue.requests(), queued ? 2 : 1) << size;
    ASSERT_EQ(queue.items(), queued ? 5U : 1U) << size;
    if (!queued) queue.push(request);
    std::uint32_t taken = 0;
    for (; queue.requests() > 0; queue.admit()) taken += take(queue, 10).count;
    ASSERT_EQ(taken, 6U) << size;
    ASSERT_TRUE(queue.empty());
  }
  EXPECT_GE(refused, 3);
}

TEST_F(QueueWithoutMemory, AnAcceptedRequestNeedsNoMore) {
  RequestQueue queue({.max_items = 4});
  queue.push(with_keys({1, 2, 2, 3}, 0, "one"));
  Request& waiting = with_keys({4, 5, 6, 7}, 0, "two");
  queue.push_waiting(waiting);
  Request& removed = with_keys({8, 9}, 0, "two");
  queue.push_waiting(removed);
  const NoMemoryFor all(0);
  for (int i = 0; i < 3; ++i) take(queue, 4);
  EXPECT_EQ(queue.admit(), &waiting);
  queue.remove(removed);
  take(queue, 4);
  queue.remove(waiting);
  EXPECT_TRUE(queue.empty());
}

}  // namespace
}  // namespace service_streamer
