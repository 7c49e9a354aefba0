// Results that cannot be handed on for want of memory: no request is lost, and nothing keeps it.

#include <gtest/gtest.h>

#include <cstdint>
#include <new>
#include <vector>

#include "support/broker_ingress.h"
#include "support/no_memory.h"
#include "support/raw_client.h"

namespace service_streamer::support {
namespace {

class ResultsWithoutMemory : public BrokerIngressTest {};

TEST_F(ResultsWithoutMemory, ABrokerIngressGivesTheEndOfARequestOnceThereIsMemory) {
  ASSERT_EQ(submit(1, {1}), SubmitStatus::kAccepted);
  const Ids ids{1};
  ingress->cancel(ids);
  {
    const NoMemoryFor anything(1);
    EXPECT_THROW(poll(), std::bad_alloc);
  }
  EXPECT_EQ(take_one().outcome, Outcome::kCancelled);
  ingress->stop();
  EXPECT_EQ(poll(), TakeStatus::kStopped);
}

TEST(ServerWithoutMemory, AClientWhoseResultCannotBeSentIsDisconnected) {
  Owner owner;
  const RawClient client(*owner.server);
  client.submit(1, {1});
  ASSERT_TRUE(eventually([&] { return owner.engine.requests() == 1; }));
  {
    const NoMemoryFor list(sizeof(EndedCall), sizeof(EndedCall) + 1);
    client.cancel(1);
    EXPECT_TRUE(client.is_cut_off());
    EXPECT_GT(list.felt(), 0);
  }
  owner.add_ready();
  const RawClient honest(*owner.server);
  honest.submit(1, {1});
  EXPECT_EQ(honest.result().outcome, Outcome::kAnswered);
}

}  // namespace
}  // namespace service_streamer::support
