#pragma once

// A BrokerEgress with its engine, for tests that play the broker.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "service_streamer/broker/broker_egress.h"
#include "support/broker_bodies.h"
#include "support/client_link.h"

namespace service_streamer::support {

using ipc::BrokerEgress;
using TakeStatus = BrokerEgress::TakeStatus;
using Taken = BrokerEgress::Taken;
using std::chrono::milliseconds;
using Ids = std::vector<std::uint64_t>;

constexpr std::size_t kPlenty = 1'000'000;

class BrokerEgressTest : public testing::Test {
 protected:
  ~BrokerEgressTest() override {
    close_remote(engine, false);
    egress->stop();
    abort_remote(engine);
    EXPECT_EQ(engine.stats().running_batches, 0) << "everything was given back";
  }

  Taken take(std::size_t limit = kPlenty, TakeStatus expected = TakeStatus::kTaken) const {
    Taken taken;
    EXPECT_EQ(egress->take(limit, soon(), taken), expected);
    return taken;
  }
  Chunk take_one() const {
    Taken taken = take();
    EXPECT_EQ(taken.chunks.size(), 1U);
    return taken.chunks.empty() ? Chunk{} : taken.chunks.front();
  }
  TakeStatus poll(std::size_t limit = kPlenty) const {
    Taken taken;
    return egress->take(limit, Clock::now(), taken);
  }
  ForwardedRequests& out() const { return egress->forwarded(); }

  // Returns a request that has been taken and expires soon. Tries again if it expired before take().
  RemoteRequest taken_before_it_expires(Chunk& chunk) {
    for (Duration left = milliseconds(10);; left *= 2) {
      RemoteRequest request = sent(engine, {1}, {.deadline = Clock::now() + left});
      Taken taken;
      egress->take(kPlenty, request.request().deadline, taken);
      if (taken.chunks.empty()) continue;
      chunk = taken.chunks.front();
      return request;
    }
  }

  Engine engine{kWaitingRoom};
  std::unique_ptr<BrokerEgress> egress = std::make_unique<BrokerEgress>(engine, 4);
};

}  // namespace service_streamer::support
