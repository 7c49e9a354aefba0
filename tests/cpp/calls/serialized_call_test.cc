// Calls whose items go to another process: their ends, their observers, and when they are freed.

#include "service_streamer/calls/serialized_call.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <vector>

#include "support/mailbox.h"
#include "support/server.h"

namespace service_streamer::support {
namespace {

using ipc::Forwarder;
using ipc::ResultKind;

void* message(std::uintptr_t number) {
  return reinterpret_cast<void*>(number);
}

ipc::ResultRange range(std::uint32_t begin, std::uint32_t count, ResultKind kind = ResultKind::kOutputs) {
  return {.begin = begin, .count = count, .result = {.kind = kind, .bytes = {}, .blocks = {}}};
}

// Ends a request that no worker has taken.
void end(Engine& engine, const RemoteRequest& request, Outcome outcome) {
  EndedRequests ended;
  EXPECT_TRUE(engine.end_early(request.request(), outcome, true, ended));
  ipc::publish(ended);
}

class CallEnds : public testing::Test {
 protected:
  Engine engine{{.batch_size = 8, .policy = PolicyKind::kGreedy}};
};

TEST_F(CallEnds, ObserversAreNotifiedOnceAndInOrder) {
  const auto mailbox = std::make_shared<Mailbox>();
  const RemoteRequest request = sent(engine, {1});
  EXPECT_TRUE(request.call().observers.add(mailbox, message(1)));
  EXPECT_TRUE(request.call().observers.add(mailbox, message(2)));
  EXPECT_TRUE(mailbox->drain().empty());
  end(engine, request, Outcome::kExpired);
  EXPECT_EQ(drained(*mailbox), (std::vector<void*>{message(1), message(2)}));
  EXPECT_FALSE(request.call().observers.add(mailbox, message(3))) << "it has ended";
  EXPECT_TRUE(request.done()) << "a refused observer sees the end";
  EXPECT_TRUE(mailbox->drain().empty());
}

TEST_F(CallEnds, EachObserverIsNotifiedOrRefused) {
  for (int round = 0; round < 2000 / kStressShare; ++round) {
    const auto mailbox = std::make_shared<Mailbox>();
    const RemoteRequest request = sent(engine, {1});
    std::atomic<int> refused{0};
    {
      Thread observer([&] {
        for (std::uintptr_t i = 1; i <= 4; ++i) {
          if (!request.call().observers.add(mailbox, message(i))) ++refused;
        }
      });
      end(engine, request, Outcome::kCancelled);
    }
    ASSERT_EQ(static_cast<int>(mailbox->drain().size()) + refused, 4);
  }
}

TEST_F(CallEnds, AnObserverKeepsItsMailboxAlive) {
  auto mailbox = std::make_shared<Mailbox>();
  const std::weak_ptr<Mailbox> watched = mailbox;
  {
    const RemoteRequest request = sent(engine, {1});
    EXPECT_TRUE(request.call().observers.add(std::move(mailbox), message(1)));
    EXPECT_FALSE(watched.expired());
    end(engine, request, Outcome::kCancelled);
    EXPECT_TRUE(watched.expired());
  }
  auto unused = std::make_shared<Mailbox>();
  const std::weak_ptr<Mailbox> also_watched = unused;
  {
    const RemoteRequest never_submitted({1});
    EXPECT_TRUE(never_submitted.call().observers.add(std::move(unused), message(1)));
  }
  EXPECT_TRUE(also_watched.expired());
}

TEST_F(CallEnds, TheItemsAreFreedWithTheLastHold) {
  const RemoteRequest request = sent(engine, {1, 2, 3});
  Batch batch = take(engine);
  ASSERT_EQ(batch.items, 3U);
  end(engine, request, Outcome::kExpired);
  EXPECT_EQ(request.call().payload.items(), 3U) << "they may be sent to a worker again";
  EndedRequests ended;
  ReleasedRequests released;
  request.call().add(range(0, 3));
  engine.complete(batch, Outcome::kAnswered, ended, released);
  ipc::publish(ended);
  ipc::let_go(released);
  EXPECT_EQ(request.call().payload.items(), 0U);
  EXPECT_TRUE(request.call().ranges.empty()) << "late outputs are freed too";
}

TEST_F(CallEnds, KeepsResultsInTheOrderOfTheItems) {
  const RemoteRequest request({1, 2, 3, 4});
  for (const std::uint32_t begin : {2U, 0U, 3U, 1U}) request.call().add(range(begin, 1));
  std::uint32_t next = 0;
  for (const ipc::ResultRange& kept : request.call().ranges) EXPECT_EQ(kept.begin, next++);
  EXPECT_EQ(next, 4U);
}

TEST_F(CallEnds, AnErrorReplacesEarlierResultsAndLaterResultsAreIgnored) {
  const RemoteRequest request({1, 2, 3});
  request.call().add(range(0, 1));
  request.call().add(range(1, 1, ResultKind::kError));
  request.call().add(range(2, 1));
  request.call().add(range(0, 1, ResultKind::kError));
  ASSERT_EQ(request.call().ranges.size(), 1U);
  EXPECT_EQ(request.call().ranges.front().begin, 1U);
}

class Counting final : public Forwarder {
 public:
  void cancel(std::uint64_t id, Outcome outcome) noexcept override {
    EXPECT_EQ(id, 7U);
    as = outcome;
    ++cancelled;
  }
  std::atomic<int> cancelled{0};
  std::atomic<Outcome> as{Outcome::kNone};
};

TEST_F(CallEnds, TellsTheForwarderIfItEndsWithoutAResult) {
  for (const Outcome outcome : {Outcome::kCancelled, Outcome::kExpired, Outcome::kClosed, Outcome::kLost}) {
    const auto forwarder = std::make_shared<Counting>();
    const RemoteRequest request = sent(engine, {1});
    EXPECT_EQ(request.call().forwarded_as(), 0U);
    request.call().forwarded(forwarder, 7);
    EXPECT_EQ(request.call().forwarded_as(), 7U);
    end(engine, request, outcome);
    EXPECT_EQ(forwarder->cancelled, 1);
    EXPECT_EQ(forwarder->as, outcome);
  }
  for (const Outcome outcome : {Outcome::kAnswered, Outcome::kFailed}) {
    const auto forwarder = std::make_shared<Counting>();
    const RemoteRequest request = sent(engine, {1});
    request.call().forwarded(forwarder, 7);
    end(engine, request, outcome);
    EXPECT_EQ(forwarder->cancelled, 0);
  }
}

TEST_F(CallEnds, DoesNotTellAForwarderThatGaveItBack) {
  const auto forwarder = std::make_shared<Counting>();
  const RemoteRequest back = sent(engine, {1});
  back.call().forwarded(forwarder, 7);
  back.call().taken_back();
  EXPECT_EQ(back.call().forwarded_as(), 0U);
  end(engine, back, Outcome::kCancelled);
  EXPECT_EQ(forwarder->cancelled, 0);

  const RemoteRequest again = sent(engine, {1});
  again.call().forwarded(forwarder, 7);
  again.call().taken_back();
  EXPECT_EQ(again.call().forwarded(forwarder, 8), 7U) << "it keeps its id";
  end(engine, again, Outcome::kCancelled);
  EXPECT_EQ(forwarder->cancelled, 1);
}

TEST_F(CallEnds, TellsTheForwarderOnceIfItIsCancelledWhileItIsForwarded) {
  for (int round = 0; round < 2000 / kStressShare; ++round) {
    const auto forwarder = std::make_shared<Counting>();
    const RemoteRequest request = sent(engine, {1});
    {
      Thread client_link([&] { request.call().forwarded(forwarder, 7); });
      end(engine, request, Outcome::kCancelled);
    }
    ASSERT_EQ(forwarder->cancelled, 1);
  }
}

}  // namespace
}  // namespace service_streamer::support
