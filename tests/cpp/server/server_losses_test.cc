// Workers of a Server that die, hang, fail or do not start, and their batches.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <string>

#include "support/server.h"

namespace service_streamer::support {
namespace {

using std::chrono::milliseconds;
using Kind = Server::Event::Kind;

bool die(const ipc::BatchMessage&, ipc::ReplyMessage&) {
  return false;
}

// A model with memory for at most `items` items, and none for the item 13.
Model with_memory_for(std::size_t items) {
  return [items](const ipc::BatchMessage& batch, ipc::ReplyMessage& reply) {
    const std::vector<int> numbers = numbers_of(batch.payload.bytes);
    reply.out_of_memory = numbers.size() > items || std::find(numbers.begin(), numbers.end(), 13) != numbers.end();
    if (!reply.out_of_memory) return add_one(batch, reply);
    reply.results.push_back({.kind = ipc::ResultKind::kError, .bytes = bytes_of({}), .blocks = {}});
    return true;
  };
}

TEST(ServerLosses, ABatchWhoseWorkerDiedRunsAgainOnAnother) {
  Owner owner;
  const std::uint32_t dying = owner.add_ready(die);
  const RemoteRequest request = sent(owner.engine, {1, 2});
  const std::optional<Server::Event> event = owner.next_event();
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->kind, Kind::kGone);
  EXPECT_EQ(event->worker, dying);
  EXPECT_TRUE(event->had_batch);
  EXPECT_FALSE(request.done());
  EXPECT_EQ(owner.engine.stats().running_items, 2U) << "still running for the engine";
  EXPECT_NE(owner.server->stats().find("\"worker_restarts\":1,"), std::string::npos);
  owner.add();
  EXPECT_TRUE(request.answered());
}

// A model that ran its whole batch in parts of `fits` items.
Model ran_in_parts_of(std::size_t fits) {
  return [fits](const ipc::BatchMessage& batch, ipc::ReplyMessage& reply) {
    const std::size_t items = numbers_of(batch.payload.bytes).size();
    reply.isolated = items > fits;
    if (items > fits) reply.memory = {.failed = 2 * fits, .passed = fits};
    return add_one(batch, reply);
  };
}

TEST(ServerLosses, WhatWasLearnedAboutTheMemoryOutlivesTheWorker) {
  Owner owner({.batch_size = 8, .policy = PolicyKind::kGreedy});
  const std::uint32_t first = owner.add_ready(ran_in_parts_of(2));
  EXPECT_TRUE(sent(owner.engine, {1, 2, 3, 4, 5, 6, 7, 8}).answered());
  EXPECT_EQ(owner.engine.stats().memory_limits, (std::map<std::uint64_t, double>{{0, 2}}));
  owner.server->retire_worker(first);
  EXPECT_TRUE(owner.next_is(Kind::kRetired, first));
  EXPECT_TRUE(owner.next_is(Kind::kGone, first));
  owner.add_ready(ran_in_parts_of(2));
  EXPECT_TRUE(sent(owner.engine, {1, 2, 3, 4, 5, 6, 7, 8}).answered());
  EXPECT_EQ(owner.engine.stats().counters.out_of_memory, 1U);
}

TEST(ServerLosses, AReplyThatHasLearnedMoreThanItsBatchHasIsInvalid) {
  Owner owner({.batch_size = 8, .policy = PolicyKind::kGreedy});
  owner.add_ready([](const ipc::BatchMessage& batch, ipc::ReplyMessage& reply) {
    reply.memory = {.failed = 9, .passed = 2};
    return add_one(batch, reply);
  });
  const RemoteRequest request = sent(owner.engine, {1, 2});
  const std::optional<Server::Event> event = owner.next_event();
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->kind, Kind::kGone);
  EXPECT_TRUE(owner.engine.stats().memory_limits.empty());
}

TEST(ServerLosses, ContextsStayWithABatchThatRunsAgain) {
  Owner owner({.batch_size = 4, .max_latency = std::chrono::hours(1), .policy = PolicyKind::kWindow});
  std::vector<std::vector<std::string>> seen;
  const auto note = [&seen](const ipc::BatchMessage& batch) {
    EXPECT_EQ(batch.head.reason, CloseReason::kFull);
    seen.push_back(contexts_of(batch));
  };
  owner.add_ready([&note](const ipc::BatchMessage& batch, ipc::ReplyMessage&) {
    note(batch);
    return false;
  });
  const RemoteRequest plain = sent(owner.engine, {1});
  const RemoteRequest large = sent(owner.engine, {2, 3}, {.context = context_of("large")});
  const RemoteRequest small = sent(owner.engine, {4}, {.context = context_of("small")});
  ASSERT_TRUE(owner.next_event().has_value()) << "the worker died";
  owner.add([&note, model = with_memory_for(3)](const ipc::BatchMessage& batch, ipc::ReplyMessage& reply) {
    note(batch);
    return model(batch, reply);
  });
  EXPECT_TRUE(plain.answered() && large.answered() && small.answered());
  const std::vector<std::string> whole{"", "large", "small"};
  EXPECT_EQ(seen, (std::vector<std::vector<std::string>>{whole, whole, {"", "large"}, {"large", "small"}}));
}

TEST(ServerLosses, ARetryRunsBeforeANewBatch) {
  Owner owner({.batch_size = 1, .policy = PolicyKind::kGreedy});
  owner.add_ready(die);
  const RemoteRequest first = sent(owner.engine, {1});
  ASSERT_TRUE(owner.next_event().has_value());
  const RemoteRequest second = sent(owner.engine, {10});
  std::vector<int> seen;
  owner.add([&seen](const ipc::BatchMessage& batch, ipc::ReplyMessage& reply) {
    seen.push_back(numbers_of(batch.payload.bytes).front());
    return add_one(batch, reply);
  });
  EXPECT_TRUE(first.answered() && second.answered());
  EXPECT_EQ(seen, (std::vector<int>{1, 10}));
}

TEST(ServerLosses, ABatchForWhichAWorkerHasNoMemoryRunsInHalves) {
  Owner owner;
  owner.add_ready(with_memory_for(2));
  const RemoteRequest large = sent(owner.engine, {1, 2, 3, 4, 5, 6, 7});
  EXPECT_TRUE(large.answered());
  EXPECT_EQ(owner.workers.front()->batches(), 7) << "of 7, 3, 1, 2, 4, 2, 2 items";
  EXPECT_EQ(owner.engine.stats().running_batches, 0);
  EXPECT_EQ(owner.engine.stats().running_items, 0U);
}

TEST(ServerLosses, AnItemForWhichNoWorkerHasMemoryFailsItsRequestAlone) {
  Owner owner({.batch_size = 3, .max_latency = std::chrono::hours(1), .policy = PolicyKind::kWindow},
              {.retries = 0, .address = {}});
  owner.add_ready(with_memory_for(3));
  const RemoteRequest first = sent(owner.engine, {1});
  const RemoteRequest guilty = sent(owner.engine, {13});
  const RemoteRequest last = sent(owner.engine, {2});
  EXPECT_TRUE(guilty.ends_as(Outcome::kFailed));
  EXPECT_TRUE(first.answered() && last.answered());
  EXPECT_FALSE(owner.next_event(Duration::zero()).has_value()) << "the worker lives";
}

TEST(ServerLosses, ABatchThatKillsEveryWorkerIsLostWithANote) {
  Owner owner(kServed, {.retries = 2, .address = {}});
  for (int i = 0; i < 3; ++i) owner.add_ready(die);
  const RemoteRequest request = sent(owner.engine, {1});
  EXPECT_TRUE(request.ends_as(Outcome::kLost));
  EXPECT_NE(request.call().note.find("attempt 3 of 3"), std::string::npos) << request.call().note;
  owner.add();
  EXPECT_TRUE(sent(owner.engine, {1}).answered()) << "other requests are not affected";
}

TEST(ServerLosses, WithoutRetriesABatchIsLostAtOnce) {
  Owner owner(kServed, {.retries = 0, .address = {}});
  owner.add_ready(die);
  owner.add_ready(die);
  EXPECT_TRUE(sent(owner.engine, {1}).ends_as(Outcome::kLost));
}

TEST(ServerLosses, RequestsThatEndedAreNotRunAgain) {
  Owner owner;
  Gate gate;
  owner.add_ready(gate.before(die));
  const RemoteRequest kept = sent(owner.engine, {1});
  ASSERT_TRUE(gate.entered());
  const RemoteRequest cancelled = sent(owner.engine, {2});
  const RemoteRequest also_kept = sent(owner.engine, {3});
  owner.add_ready(die);  // gets both requests in one batch
  ASSERT_TRUE(eventually([&] { return owner.engine.stats().queued_requests == 0; }));
  EXPECT_TRUE(cancelled.cancel(owner.engine, true));
  gate.open();
  std::atomic<int> items{0};
  owner.add([&items](const ipc::BatchMessage& batch, ipc::ReplyMessage& reply) {
    items += static_cast<int>(batch.payload.items());
    return add_one(batch, reply);
  });
  EXPECT_TRUE(kept.answered() && also_kept.answered());
  EXPECT_EQ(items, 2);
  EXPECT_TRUE(cancelled.ends_as(Outcome::kCancelled));
}

TEST(ServerLosses, ABatchWhoseRequestsEndedIsDroppedWithoutAWorker) {
  Owner owner;
  owner.add_ready(die);
  const RemoteRequest request = sent(owner.engine, {1});
  ASSERT_TRUE(owner.next_event().has_value());
  EXPECT_TRUE(request.cancel(owner.engine, true));
  close_remote(owner.engine, true);
  Sleeping sleeping;
  EXPECT_EQ(owner.engine.wait_until_drained(sleeping.waiter(), Clock::now() + kPatience), Completion::Wait::kDone);
}

TEST(ServerLosses, AWorkerThatCannotLoadItsModelReportsTheTraceback) {
  Owner owner;
  const std::uint32_t id = owner.add(add_one, false);
  std::optional<Server::Event> event = owner.next_event();
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->kind, Kind::kInitFailed);
  EXPECT_EQ(event->text, "no model");
  EXPECT_TRUE(owner.next_is(Kind::kGone, id));
}

TEST(ServerLosses, SetFailureEndsCurrentAndLaterRequests) {
  Owner owner;
  const RemoteRequest queued = sent(owner.engine, {1});
  owner.server->set_failure("init: no model");
  EXPECT_TRUE(queued.ends_as(Outcome::kLost));
  EXPECT_EQ(queued.call().note, "init: no model");
  const RemoteRequest later({2});
  EXPECT_TRUE(later.submit(owner.engine, &*owner.server));
  EXPECT_TRUE(later.ends_as(Outcome::kLost));
  EXPECT_EQ(later.call().note, "init: no model");
  owner.server->set_failure(std::nullopt);
  const RemoteRequest hopeful({3});
  EXPECT_TRUE(hopeful.submit(owner.engine, &*owner.server));
  owner.add();
  EXPECT_TRUE(hopeful.answered());
}

// A process that sleeps until it is killed.
class Victim {
 public:
  Victim() : pid_(fork()) {
    if (pid_ == 0) {
      for (;;) pause();
    }
  }
  ~Victim() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Victim(const Victim&) = delete;
  Victim& operator=(const Victim&) = delete;

  pid_t pid() const { return pid_; }

 private:
  const pid_t pid_;
};

TEST(ServerLosses, AWorkerThatHangsIsKilledAndAnotherRunsItsBatch) {
  const Victim victim;
  Owner owner(kServed, {.hang_timeout = milliseconds(50), .address = {}});
  auto [ours, its] = ipc::socket_pair();
  Gate gate;  // keeps the thread, and so the worker's socket, until the end
  owner.workers.push_back(std::make_unique<FakeWorker>(std::move(its), gate.before()));
  const std::uint32_t id = owner.server->add_worker(std::move(ours), victim.pid(), "setup");
  ASSERT_TRUE(owner.next_is(Kind::kReady, id));
  const RemoteRequest request = sent(owner.engine, {1});
  const std::optional<Server::Event> event = owner.next_event();
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->kind, Kind::kGone);
  EXPECT_TRUE(event->had_batch);
  EXPECT_TRUE(event->killed_hung);
  owner.add();
  EXPECT_TRUE(request.answered());
}

TEST(ServerLosses, ADeathIsSeenEvenIfTheSocketStaysOpen) {
  Owner owner;
  auto [ours, its] = ipc::socket_pair();
  std::uint32_t id = 0;
  Gate gate;
  {
    const Victim victim;
    owner.workers.push_back(std::make_unique<FakeWorker>(std::move(its), gate.before()));
    id = owner.server->add_worker(std::move(ours), victim.pid(), "setup");
    ASSERT_TRUE(owner.next_is(Kind::kReady, id));
  }
  EXPECT_TRUE(owner.next_is(Kind::kGone, id));
}

TEST(ServerLosses, DisconnectsAWorkerThatBreaksTheProtocol) {
  Owner owner;
  auto [ours, its] = ipc::socket_pair();
  const std::uint32_t id = owner.server->add_worker(std::move(ours), 0, "");
  const auto worker = ipc::Connection::make(std::move(its));
  worker->send_all(ipc::make_hello(ipc::Role::kWorker));
  worker->send_all(ipc::make_reply(1, {}));  // there is no batch
  EXPECT_TRUE(owner.next_is(Kind::kGone, id));
  owner.add();
  EXPECT_TRUE(sent(owner.engine, {1}).answered());
}

TEST(ServerLosses, ReportsAWorkerOfAnotherVersion) {
  Owner owner;
  auto [ours, its] = ipc::socket_pair();
  const std::uint32_t id = owner.server->add_worker(std::move(ours), 0, "");
  const auto worker = ipc::Connection::make(std::move(its));
  ipc::OutMessage hello = ipc::make_hello(ipc::Role::kWorker);
  ++hello.head[hello.head.size() - sizeof(ipc::wire::Hello)];
  worker->send_all(std::move(hello));
  EXPECT_TRUE(owner.next_is(Kind::kInitFailed, id));
  EXPECT_TRUE(owner.next_is(Kind::kGone, id));
}

TEST(ServerLosses, DisconnectsAWorkerWithTooFewResults) {
  Owner owner;
  owner.add_ready([](const ipc::BatchMessage&, ipc::ReplyMessage&) { return true; });
  const RemoteRequest request = sent(owner.engine, {1});
  ASSERT_TRUE(owner.next_event().has_value());
  owner.add();
  EXPECT_TRUE(request.answered());
}

}  // namespace
}  // namespace service_streamer::support
