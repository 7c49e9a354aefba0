// A Server and its workers.

#include "service_streamer/server/server.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <numeric>
#include <string>

#include "support/server.h"

namespace service_streamer::support {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using Kind = Server::Event::Kind;

std::vector<int> many(int count) {
  std::vector<int> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

TEST(Server, AnswersARequest) {
  Owner owner;
  owner.add_ready();
  const RemoteRequest request = sent(owner.engine, {1, 2, 3});
  EXPECT_TRUE(request.answered());
}

TEST(Server, RunsRequestsThatWereQueuedBeforeTheFirstWorker) {
  Owner owner;
  const RemoteRequest request = sent(owner.engine, {1});
  owner.add();
  EXPECT_TRUE(request.answered());
}

TEST(Server, SendsTheSetupAndReportsThatTheWorkerIsReady) {
  Owner owner;
  const std::uint32_t id = owner.add();
  const std::optional<Server::Event> event = owner.next_event();
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->kind, Kind::kReady);
  EXPECT_EQ(event->worker, id);
  EXPECT_EQ(event->text, "{}");
  owner.server->stop();
  ASSERT_TRUE(eventually([&] { return owner.workers[0]->finished(); })) << "it sees the end of file";
  EXPECT_EQ(owner.workers[0]->setup(), "setup");
}

TEST(Server, CutsALargeRequestForAllWorkersAndJoinsTheResults) {
  Owner owner;
  owner.add_ready();
  owner.add_ready();
  const RemoteRequest request = sent(owner.engine, many(1000));
  EXPECT_TRUE(request.answered());
  EXPECT_GT(owner.workers[0]->batches(), 0);
  EXPECT_GT(owner.workers[1]->batches(), 0);
}

TEST(Server, AnErrorEndsItsRequestOnly) {
  Owner owner;
  Gate gate;
  owner.add_ready(gate.before([](const ipc::BatchMessage& batch, ipc::ReplyMessage& reply) {
    add_one(batch, reply);
    if (reply.results.size() == 1) return true;
    reply.results.back().kind = ipc::ResultKind::kError;
    reply.isolated = true;
    return true;
  }));
  const RemoteRequest first = sent(owner.engine, {1});
  ASSERT_TRUE(gate.entered());
  const RemoteRequest good = sent(owner.engine, {2});
  const RemoteRequest bad = sent(owner.engine, {3, 4});
  gate.open();
  EXPECT_TRUE(first.answered() && good.answered());
  EXPECT_TRUE(bad.ends_as(Outcome::kFailed));
  ASSERT_EQ(bad.call().ranges.size(), 1U);
  EXPECT_EQ(bad.call().ranges[0].result.kind, ipc::ResultKind::kError);
  EXPECT_EQ(owner.engine.stats().counters.isolated, 1U) << "the good one, although its batch failed";
}

TEST(Server, APostponedRequestRunsAlone) {
  Owner owner;
  Gate gate;
  owner.add_ready(gate.before([](const ipc::BatchMessage& batch, ipc::ReplyMessage& reply) {
    add_one(batch, reply);
    if (reply.results.size() == 1) return true;
    EXPECT_TRUE(batch.ranges[0].whole && batch.ranges[1].whole);
    reply.results.back() = {.kind = ipc::ResultKind::kPostponed, .bytes = {}, .blocks = {}};
    reply.isolated = true;
    return true;
  }));
  const RemoteRequest first = sent(owner.engine, {1});
  ASSERT_TRUE(gate.entered());
  const RemoteRequest second = sent(owner.engine, {2});
  const RemoteRequest third = sent(owner.engine, {3, 4});
  gate.open();
  EXPECT_TRUE(first.answered() && second.answered() && third.answered());
  EXPECT_EQ(owner.workers[0]->batches(), 3);
}

TEST(Server, AWorkerThatPostponesARequestThatRanAloneIsDisconnected) {
  Owner owner;
  const std::uint32_t id = owner.add_ready([](const ipc::BatchMessage& batch, ipc::ReplyMessage& reply) {
    add_one(batch, reply);
    reply.results.back() = {.kind = ipc::ResultKind::kPostponed, .bytes = {}, .blocks = {}};
    return true;
  });
  const RemoteRequest request = sent(owner.engine, {1});
  EXPECT_TRUE(owner.next_is(Kind::kGone, id));
  owner.add();
  EXPECT_TRUE(request.answered());
}

TEST(Server, ARetiredWorkerFinishesItsBatchAndGetsNoOther) {
  Owner owner;
  Gate gate;
  const std::uint32_t old = owner.add_ready(gate.before());
  const RemoteRequest running = sent(owner.engine, {1});
  ASSERT_TRUE(gate.entered());
  owner.server->retire_worker(old);
  EXPECT_TRUE(owner.next_is(Kind::kRetired, old));
  EXPECT_EQ(owner.server->workers()[0].state, ipc::WorkerReport::State::kRetiring);
  const RemoteRequest next = sent(owner.engine, {2});
  gate.open();
  EXPECT_TRUE(running.answered());
  EXPECT_TRUE(owner.next_is(Kind::kGone, old));
  EXPECT_FALSE(next.done());
  EXPECT_EQ(owner.workers[0]->batches(), 1);
  owner.add();
  EXPECT_TRUE(next.answered());
}

TEST(Server, ARetiredIdleWorkerEndsAtOnceAndAnotherGetsItsBatch) {
  Owner owner;
  const std::uint32_t first = owner.add_ready();
  const std::uint32_t second = owner.add_ready();
  owner.server->retire_worker(second);  // it would get the next batch
  EXPECT_TRUE(sent(owner.engine, {1}).answered());
  EXPECT_TRUE(owner.next_is(Kind::kRetired, second));
  EXPECT_TRUE(owner.next_is(Kind::kGone, second));
  owner.server->retire_worker(first);
  EXPECT_TRUE(owner.next_is(Kind::kRetired, first));
  EXPECT_TRUE(owner.next_is(Kind::kGone, first));
  EXPECT_TRUE(owner.server->workers().empty());
  EXPECT_NE(owner.server->stats().find("\"worker_restarts\":0,"), std::string::npos) << "they did not die";
}

TEST(Server, ARetiredWorkerThatIsStillStartingEndsToo) {
  Owner owner;
  const std::uint32_t id = owner.add();
  owner.server->retire_worker(id);
  while (const std::optional<Server::Event> event = owner.next_event()) {
    if (event->kind == Kind::kGone) break;
  }
  EXPECT_TRUE(owner.server->workers().empty());
}

TEST(Server, DeadlinesAreKeptWithoutAnyWorker) {
  Owner owner;
  const TimePoint deadline = Clock::now() + milliseconds(20);
  const RemoteRequest request = sent(owner.engine, {1}, {.deadline = deadline});
  EXPECT_TRUE(request.ends_as(Outcome::kExpired));
  EXPECT_GE(request.request().ended, deadline);
}

TEST(Server, DeadlinesAreKeptWhileTheWorkerIsBusy) {
  Owner owner;
  Gate gate;
  owner.add_ready(gate.before());
  const RemoteRequest running = sent(owner.engine, {1}, {.deadline = Clock::now() + milliseconds(20)});
  EXPECT_TRUE(running.ends_as(Outcome::kExpired));
  gate.open();
  EXPECT_TRUE(sent(owner.engine, {2}).answered());
}

TEST(Server, StopEndsRunningRequestsAndWorkers) {
  Owner owner;
  Gate gate;
  owner.add_ready(gate.before());
  const RemoteRequest running = sent(owner.engine, {1});
  ASSERT_TRUE(gate.entered());
  const RemoteRequest queued = sent(owner.engine, {2});
  owner.server->stop();
  owner.server->stop();
  EXPECT_TRUE(running.ends_as(Outcome::kClosed));
  EXPECT_FALSE(queued.done()) << "for Engine::abort()";
  abort_remote(owner.engine);
  EXPECT_TRUE(queued.ends_as(Outcome::kClosed));
  gate.open();
  EXPECT_TRUE(eventually([&] { return owner.workers[0]->finished(); }));
}

TEST(Server, StopsWithoutStart) {
  Engine engine(kServed);
  Server server(engine, {});
  auto [ours, its] = ipc::socket_pair();
  server.add_worker(std::move(ours), 0, "setup");
  FakeWorker worker(std::move(its));
  server.stop();
  EXPECT_TRUE(eventually([&] { return worker.finished(); }));
}

TEST(Server, ItsEngineMayWakeItAfterItIsDestroyed) {
  Engine engine(kServed);
  for (int round = 0; round < 100 / kStressShare; ++round) {
    std::atomic<bool> stop{false};
    auto server = std::make_unique<Server>(engine, ipc::ServerOptions{});
    server->start();
    auto [ours, its] = ipc::socket_pair();
    const FakeWorker worker(std::move(its));
    server->add_worker(std::move(ours), 0, "");
    Thread caller([&] {
      while (!stop) sent(engine, {1}).cancel(engine, true);
    });
    server->stop();
    server.reset();
    stop = true;
  }
  abort_remote(engine);
}

TEST(Server, NextEventBlocksUntilAnEventOrAnInterrupt) {
  Owner owner;
  EXPECT_FALSE(owner.next_event(Duration::zero()).has_value());
  owner.server->interrupt();
  EXPECT_FALSE(owner.next_event(hours(1)).has_value());
  std::atomic<bool> returned{false};
  Thread supervisor([&] {
    owner.next_event(hours(1));
    returned = true;
  });
  EXPECT_TRUE(eventually([&] { return supervisor.asleep(); }));
  owner.server->interrupt();
  EXPECT_TRUE(eventually([&] { return returned.load(); }));
}

TEST(Server, ReportsEveryWorker) {
  Owner owner;
  const std::uint32_t id = owner.add_ready([](const ipc::BatchMessage& batch, ipc::ReplyMessage& reply) {
    reply.predict = milliseconds(3);
    return add_one(batch, reply);
  });
  EXPECT_TRUE(sent(owner.engine, {1, 2}).answered());
  const std::vector<ipc::WorkerReport> reports = owner.server->workers();
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].id, id);
  EXPECT_EQ(reports[0].state, ipc::WorkerReport::State::kReady);
  EXPECT_EQ(reports[0].batches, 1U);
  EXPECT_EQ(reports[0].items, 2U);
  EXPECT_EQ(reports[0].predict.max, milliseconds(3));
  EXPECT_EQ(reports[0].transport.count, 1U);
  const std::string json = owner.server->stats();
  EXPECT_NE(json.find("\"worker_processes\":[{\"id\":1,\"pid\":0,\"state\":\"ready\",\"about\":\"{}\",\"batches\":1"),
            std::string::npos)
      << json;
  EXPECT_NE(json.find("\"batch_sizes\":{\"2\":1}"), std::string::npos) << json;
  EXPECT_NE(json.find("\"predict\":{\"total\":0.003,\"min\":0.003,\"max\":0.003,\"buckets\":{\"3145727\":1}}"),
            std::string::npos)
      << json;
}

TEST(Server, LeavesNoSocketFileBehind) {
  const std::string path = testing::TempDir() + "server_test_" + std::to_string(getpid());
  {
    Owner owner(kServed, {.address = path});
    EXPECT_EQ(owner.server->address(), path);
    EXPECT_EQ(access(path.c_str(), F_OK), 0);
  }
  EXPECT_NE(access(path.c_str(), F_OK), 0);
}

TEST(Server, NoSignalInterruptsItsThread) {
  Owner owner;
  ASSERT_TRUE(eventually([] { return !io_thread("SigBlk:").empty(); }));
  sigset_t ours;
  pthread_sigmask(SIG_BLOCK, nullptr, &ours);
  EXPECT_FALSE(sigismember(&ours, SIGUSR1)) << "only its own";
  sigset_t all;
  sigfillset(&all);  // without those that the C library keeps for itself
  const std::string blocked = io_thread("SigBlk:");
  const auto bits = std::stoull(blocked.substr(blocked.find('\t') + 1), nullptr, 16);
  for (int number = 1; number <= 60; ++number) {
    if (number == SIGKILL || number == SIGSTOP || sigismember(&all, number) != 1) continue;
    EXPECT_EQ(bits >> (number - 1) & 1, 1U) << number << " of " << blocked;
  }
}

// The IO thread of an idle Server has no timer.
TEST(Server, SleepsWithoutWakingWhenIdle) {
  Owner owner;
  owner.add_ready();
  EXPECT_TRUE(sent(owner.engine, {1}, {.deadline = Clock::now() + hours(1)}).answered());
  const auto switches = [] { return io_thread("voluntary_ctxt_switches:"); };
  EXPECT_TRUE(come_to_rest(switches, io_thread_sleeps, milliseconds(200)));
}

}  // namespace
}  // namespace service_streamer::support
