// Requests that come as bytes, and for which the queue has no memory: they are refused or end, and nothing keeps them.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <numeric>
#include <utility>
#include <vector>

#include "support/broker_ingress.h"
#include "support/no_memory.h"
#include "support/raw_client.h"

namespace service_streamer::support {
namespace {

using ipc::Bytes;

// The body of a request whose memory is shared with all that keep the request.
class SharedBody {
 public:
  SharedBody() {
    const Bytes body = request_of({1});
    size_ = body.size();
    memory_ = std::make_shared<std::byte[]>(size_);
    std::memcpy(memory_.get(), body.data(), size_);
  }
  Bytes bytes() const { return {memory_, memory_.get(), size_}; }
  bool kept() const { return memory_.use_count() > 1; }

 private:
  std::shared_ptr<std::byte[]> memory_;
  std::size_t size_ = 0;
};

// Each size of an allocation fails once.
TEST(SubmitWithoutMemory, ABrokerIngressKeepsNoRequestThatItHasNotSubmitted) {
  Owner owner(kServed, {.retries = 0, .address = {}});
  int refused = 0;
  int lost = 0;
  for (int size = 1; size < 600; ++size) {
    const SharedBody body;
    auto ingress = std::make_unique<BrokerIngress>(owner.engine, *owner.server);
    {
      std::vector<BrokerIngress::Submission> submissions(2);
      for (std::size_t i = 0; i < 2; ++i) {
        submissions[i].head = {.id = i + 1, .priority = 2 * size + static_cast<int>(i)};  // a new list in the queue
        submissions[i].body = body.bytes();
      }
      const NoMemoryFor one(static_cast<std::size_t>(size), static_cast<std::size_t>(size) + 1);
      try {
        ingress->submit(submissions);
      } catch (const std::bad_alloc&) {
        ++refused;
        submissions.clear();
        ASSERT_FALSE(body.kept()) << size;
      }
    }
    ingress->stop();
    Ends ends;
    while (ingress->take(soon(), ends) == TakeStatus::kTaken) {
      for (const EndedCall& end : ends) lost += end.outcome == Outcome::kLost ? 1 : 0;
      ends.clear();
    }
    ingress.reset();
    ASSERT_FALSE(body.kept()) << size;
    ASSERT_EQ(owner.engine.requests(), 0U) << size;
  }
  EXPECT_GE(refused, 3);
  EXPECT_GE(lost, 1);
}

TEST(SubmitWithoutMemory, AServerThatCannotQueueARequestDisconnectsItsClientOnly) {
  constexpr std::size_t kKeys = 1'500;  // the queue makes a table of them, of more than 2,000 entries
  Owner owner;
  owner.add_ready();
  const RawClient honest(*owner.server);
  const RawClient client(*owner.server);
  ItemTraits traits{.keys = std::vector<std::uint64_t>(kKeys), .weights = {}};
  std::iota(traits.keys.begin(), traits.keys.end(), 1);
  ipc::Payload payload;
  payload.ends.resize(kKeys);
  const ipc::Payload* const one = &payload;
  const ipc::SubmitHead head{.id = 1, .traits = std::make_shared<const ItemTraits>(std::move(traits))};
  ipc::OutMessage message = ipc::make_submit({&head, 1}, {&one, 1});
  {
    const NoMemoryFor table(8 * 2'000, 8 * 2'500);
    client.connection->send_all(std::move(message));
    EXPECT_TRUE(client.is_cut_off());
    EXPECT_GT(table.felt(), 0);
  }
  honest.submit(1, {1});
  EXPECT_EQ(honest.result().outcome, Outcome::kAnswered);
  EXPECT_EQ(owner.engine.requests(), 0U);
}

}  // namespace
}  // namespace service_streamer::support
