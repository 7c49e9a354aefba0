#pragma once

// A BrokerIngress with its engine and Server, for tests that play the broker.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "service_streamer/broker/broker_ingress.h"
#include "support/broker_bodies.h"
#include "support/client_link.h"

namespace service_streamer::support {

using ipc::BrokerIngress;
using TakeStatus = BrokerIngress::TakeStatus;
using SubmitStatus = BrokerIngress::SubmitStatus;
using Ends = std::vector<EndedCall>;
using Ids = std::vector<std::uint64_t>;
using std::chrono::milliseconds;

inline SubmitStatus submit_to(BrokerIngress& ingress, const ipc::SubmitHead& head, const Bytes& body) {
  BrokerIngress::Submission submission{.head = head, .body = body};
  ingress.submit({&submission, 1});
  return submission.submitted;
}

class BrokerIngressTest : public testing::Test {
 protected:
  explicit BrokerIngressTest(const EngineOptions& options = kServed)
      : owner(options, {.retries = 0, .address = {}}),
        ingress(std::make_unique<BrokerIngress>(owner.engine, *owner.server)) {}

  SubmitStatus submit(std::uint64_t id, const std::vector<int>& items, TimePoint deadline = TimePoint::max()) const {
    return submit_to(*ingress, {.id = id, .priority = 0, .deadline = deadline}, request_of(items));
  }
  Ends take(std::size_t count = 1) const {
    Ends all;
    while (all.size() < count) {
      Ends ended;
      EXPECT_EQ(ingress->take(soon(), ended), TakeStatus::kTaken);
      if (ended.empty()) break;
      for (EndedCall& end : ended) all.push_back(std::move(end));
    }
    return all;
  }
  EndedCall take_one() const {
    Ends ended = take();
    EXPECT_EQ(ended.size(), 1U);
    return ended.empty() ? EndedCall{} : ended.front();
  }
  TakeStatus poll() const {
    Ends ended;
    return ingress->take(Clock::now(), ended);
  }

  Owner owner;
  std::unique_ptr<BrokerIngress> ingress;
};

}  // namespace service_streamer::support
