// Ends of requests that are published without memory: nothing that waits for them is lost.

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "service_streamer/calls/client_call.h"
#include "service_streamer/client/cancelled_requests.h"
#include "support/mailbox.h"
#include "support/native.h"
#include "support/no_memory.h"
#include "support/server.h"

namespace service_streamer::support {
namespace {

// Ends and publishes the request while every allocation fails.
void end_without_memory(Engine& engine, Request& request) {
  EndedRequests ended;
  const NoMemoryFor anything(1);
  engine.end_early(request, Outcome::kExpired, true, ended);
  calls::publish(ended);
  EXPECT_EQ(anything.felt(), 0);
}

class PublishWithoutMemory : public testing::Test {
 protected:
  PublishWithoutMemory() { WakeQueue::instance(); }  // its first use allocates it

  Engine engine{{.batch_size = 8, .policy = PolicyKind::kGreedy}};
  const std::shared_ptr<Mailbox> mailbox = std::make_shared<Mailbox>();
  int value = 0;
};

TEST_F(PublishWithoutMemory, AnEventLoopIsNotified) {
  const RemoteRequest remote = sent(engine, {1});
  EXPECT_TRUE(remote.call().observers.add(mailbox, &value));
  end_without_memory(engine, remote.request());
  EXPECT_EQ(drained(*mailbox), std::vector<void*>{&value});
  const NativeRequest native({1});
  ASSERT_TRUE(native.submit(engine));
  EXPECT_TRUE(native.call().observers.add(mailbox, &value));
  end_without_memory(engine, native.call().request);
  EXPECT_EQ(drained(*mailbox), std::vector<void*>{&value});
}

TEST_F(PublishWithoutMemory, AClientGetsTheEndOfItsRequest) {
  Sleeping sleeping;
  const auto ended_calls = std::make_shared<ipc::EndedCalls>(sleeping.waiter());
  auto* call = new ipc::ClientCall(ended_calls, 1, 2);
  call->request.size = 1;
  call->ref();  // of the engine
  ASSERT_EQ(engine.submit(call->request), Engine::Admission::kQueued);
  end_without_memory(engine, call->request);
  {
    const NoMemoryFor anything(1);
    ipc::EndedCallChain taken = ended_calls->take();
    const bool only_one = taken.pop().get() == call && taken.pop() == nullptr;
    EXPECT_TRUE(only_one);
    EXPECT_EQ(anything.felt(), 0);
  }
  call->unref();
}

TEST_F(PublishWithoutMemory, TheServerIsNotToldOfACancelledRequest) {
  Sleeping sleeping;
  ipc::CancelledRequests cancelled(sleeping.waiter());
  {
    const NoMemoryFor list(1);
    cancelled.cancel(7, Outcome::kCancelled);
  }
  EXPECT_TRUE(cancelled.take().empty());
  cancelled.cancel(8, Outcome::kCancelled);
  EXPECT_EQ(cancelled.take(), std::vector<std::uint64_t>{8});
}

}  // namespace
}  // namespace service_streamer::support
