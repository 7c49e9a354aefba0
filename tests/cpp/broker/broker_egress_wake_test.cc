// Lone callers who take their request themselves, while the thread that does so otherwise sleeps.

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <vector>

#include "service_streamer/broker/broker_egress.h"
#include "support/parcels.h"
#include "support/relay.h"

namespace service_streamer::support {
namespace {

using ipc::Outlet;
using Got = Outlet::Got;
using Taken = Outlet::Taken;

constexpr std::size_t kPlenty = 1'000'000;

// Queues a request and returns whom to wake, as Engine::submit() does.
Waiter* queue_up(Engine& engine, const RemoteRequest& request) {
  request.call().ref();
  Waiter* to_wake = nullptr;
  EXPECT_EQ(engine.submit(request.request(), &to_wake), Engine::Admission::kQueued);
  return to_wake;
}

TEST(OutletWake, WhatACallerTakesIsNotTakenByWhoSleeps) {
  Engine engine(kWaitingRoom);
  Outlet outlet(engine, 4);
  std::atomic<Got> got{Got::kSomething};
  Taken theirs, ours;
  const RemoteRequest request({1, 2});
  {
    Thread sender([&] { got = outlet.take(kPlenty, TimePoint::max(), theirs); });
    EXPECT_TRUE(come_to_rest([&] { return sender.voluntary_switches(); },
                             [&] { return sender.asleep() && engine.stats().idle_workers == 1; },
                             std::chrono::milliseconds(20)));
    Waiter* to_wake = queue_up(engine, request);
    ASSERT_NE(to_wake, nullptr);
    ASSERT_TRUE(outlet.take_now(1, ours));
    ASSERT_EQ(ours.parcels.size(), 1U);
    EXPECT_TRUE(sender.asleep()) << "nobody has woken it";
    to_wake->parker.unpark();
  }
  EXPECT_EQ(got, Got::kNothing) << "it hears that there was something";
  EXPECT_TRUE(theirs.parcels.empty());
  EXPECT_TRUE(answer(outlet.handed_out(), ours.parcels.front()));
  EXPECT_TRUE(request.answered());
  close_remote(engine, true);
}

TEST(OutletWake, NobodyTakesFromOneThatIsStopped) {
  Engine engine(kWaitingRoom);
  Outlet outlet(engine, 4);
  const RemoteRequest request = sent(engine, {1});
  outlet.stop();
  Taken taken;
  EXPECT_FALSE(outlet.take_now(1, taken));
  EXPECT_TRUE(request.cancel(engine)) << "nobody has it";
}

TEST(OutletWake, EveryRequestLeavesOnceWhoeverTakesIt) {
  constexpr int kCallers = 3;
  constexpr int kRounds = 3'000 / kStressShare;
  Engine engine(kWaitingRoom);
  Outlet outlet(engine, 4);
  const auto answer_all = [&](const Taken& taken) {
    for (const Parcel& parcel : taken.parcels) EXPECT_TRUE(answer(outlet.handed_out(), parcel)) << "it left twice";
  };
  {
    Thread sender([&] {
      for (Got got = Got::kNothing; got != Got::kStopped;) {
        Taken taken;
        got = outlet.take(8, soon(), taken);
        answer_all(taken);
      }
    });
    std::vector<std::unique_ptr<Thread>> callers;
    for (int caller = 0; caller < kCallers; ++caller) {
      callers.push_back(std::make_unique<Thread>([&] {
        for (int round = 0; round < kRounds; ++round) {
          const RemoteRequest request({round});
          Waiter* to_wake = queue_up(engine, request);
          Taken taken;
          if (to_wake != nullptr) outlet.take_now(1, taken);
          answer_all(taken);
          if (to_wake != nullptr) to_wake->parker.unpark();
          EXPECT_TRUE(request.answered());
        }
      }));
    }
    callers.clear();
    close_remote(engine, true);
  }
  EXPECT_EQ(outlet.handed_out().in_flight(), 0U);
}

TEST(OutletWake, NothingIsLeftWhereStopComesInBetween) {
  for (int round = 0; round < 300 / kStressShare; ++round) {
    Engine room(kWaitingRoom);
    {
      Outlet short_lived(room, 4);
      Thread caller([&] {
        Taken taken;
        short_lived.take_now(1, taken);
      });
      for (int i = 0; i < round % 20; ++i) std::this_thread::yield();
      short_lived.stop();
    }
    ASSERT_EQ(room.stats().idle_workers, 0);
  }
}

}  // namespace
}  // namespace service_streamer::support
