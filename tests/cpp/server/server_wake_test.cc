// Callers who do the work of the server's thread while that sleeps: they give their batch to a worker, and read its answer.

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>

#include "support/server.h"

namespace service_streamer::support {
namespace {

using std::chrono::milliseconds;

// How often the server's thread has gone to sleep; asked while it sleeps.
std::string sleeps_of_the_server() {
  std::string sleeps;
  const bool known = eventually([&] {
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
      std::string name;
      std::getline(std::ifstream(thread.path() / "comm"), name);
      if (name != "streamer-server") continue;
      std::ifstream status(thread.path() / "status");
      bool asleep = false;
      for (std::string line; std::getline(status, line);) {
        asleep |= line.starts_with("State:\tS");
        if (line.starts_with("voluntary_ctxt_switches")) sleeps = line;
      }
      return asleep;
    }
    return false;
  });
  EXPECT_TRUE(known);
  return sleeps;
}

TEST(ServerWake, ALoneRequestDoesNotWakeTheServersThread) {
  // Not in each try: the thread may still be about to sleep, or to wake for what the worker said before.
  EXPECT_TRUE(eventually([&] {
    Gate gate;
    Owner owner;
    owner.add_ready(gate.before());
    const std::string before = sleeps_of_the_server();
    const RemoteRequest request({1});
    EXPECT_TRUE(request.submit(owner.engine, owner.server.get()));
    EXPECT_TRUE(gate.entered());
    const bool slept_on = sleeps_of_the_server() == before;
    gate.open();
    EXPECT_TRUE(request.answered());
    return slept_on;
  }));
}

// Somebody who asks while the server's thread sleeps, and waits, in a thread of his own.
class LoneCaller {
 public:
  explicit LoneCaller(Owner& owner, Duration patience = kPatience)
      : thread_([this, &owner, patience] {
          EXPECT_TRUE(eventually(io_thread_sleeps));
          end_ = request_.ask(owner.engine, *owner.server, patience);
        }) {}

  bool sleeps() const {
    return eventually([this] { return thread_.asleep(); });
  }
  bool comes_to_rest() const {
    return come_to_rest([this] { return thread_.voluntary_switches(); }, [this] { return thread_.asleep(); },
                        milliseconds(20));
  }
  bool returns(Completion::Wait end) const {
    return eventually([this] { return thread_.finished(); }) && end_ == end;
  }
  Thread& thread() { return thread_; }
  const RemoteRequest& request() const { return request_; }

 private:
  const RemoteRequest request_{{1, 2}};
  std::atomic<Completion::Wait> end_{};
  Thread thread_;
};

TEST(ServerWake, ALoneCallerReadsHisAnswerHimself) {
  EXPECT_TRUE(eventually([] {
    Gate gate;
    Owner owner;
    owner.add_ready(gate.before());
    const std::string before = sleeps_of_the_server();
    const LoneCaller caller(owner);
    EXPECT_TRUE(gate.entered());
    EXPECT_TRUE(caller.sleeps());
    gate.open();
    EXPECT_TRUE(caller.returns(Completion::Wait::kDone));
    EXPECT_TRUE(caller.request().answered());
    return sleeps_of_the_server() == before;
  }));
}

// What the policy would have the thread watch for, callers who come back, is this one.
TEST(ServerWake, ALoneCallerWhoComesBackDoesNotWakeItEither) {
  EXPECT_TRUE(eventually([] {
    Owner owner({.batch_size = 8, .policy = PolicyKind::kAdaptive, .workers = 2});
    owner.add_ready([](const ipc::BatchMessage& batch, ipc::ReplyMessage& reply) {
      std::this_thread::sleep_for(milliseconds(1));  // long enough to linger for
      return add_one(batch, reply);
    });
    EXPECT_TRUE(eventually(io_thread_sleeps));
    const std::string before = sleeps_of_the_server();
    for (int i = 0; i < 20; ++i) {
      const RemoteRequest request({i});
      EXPECT_EQ(request.ask(owner.engine, *owner.server), Completion::Wait::kDone);
      EXPECT_TRUE(request.answered());
    }
    return sleeps_of_the_server() == before;
  }));
}

constexpr EngineOptions kOneWorker{
    .batch_size = 8, .max_latency = milliseconds(1), .policy = PolicyKind::kGreedy, .workers = 1};

// A lone caller who waits for what the only worker will say, which waits for the gate.
struct Reading {
  explicit Reading(const EngineOptions& options = kServed, const Model& model = add_one)
      : owner(options), worker(owner.add_ready(gate.before(model))), caller(owner) {
    EXPECT_TRUE(gate.entered());
    EXPECT_TRUE(caller.sleeps());
  }

  Gate gate;
  Owner owner;
  const std::uint32_t worker;
  LoneCaller caller;
};

// What becomes of a worker whose answer a caller wanted to read: its later answers are heard by whoever comes.
bool answers_others(Owner& owner) {
  const RemoteRequest read_by_its_caller({1});
  if (read_by_its_caller.ask(owner.engine, *owner.server) != Completion::Wait::kDone) return false;
  const RemoteRequest read_by_the_thread = sent(owner.engine, {2});
  return read_by_its_caller.answered() && read_by_the_thread.answered();
}

TEST(ServerWake, ACallerWhoGivesUpLeavesTheAnswerToTheThread) {
  Gate gate;
  Owner owner;
  owner.add_ready(gate.before());
  const LoneCaller caller(owner, milliseconds(1));
  EXPECT_TRUE(caller.returns(Completion::Wait::kTimeout));
  gate.open();
  EXPECT_TRUE(caller.request().answered());
  EXPECT_TRUE(answers_others(owner));
}

TEST(ServerWake, ASignalLeavesTheAnswerToTheThread) {
  Reading reading;
  EXPECT_TRUE(reading.caller.thread().interrupt_until([&] { return reading.caller.thread().finished(); }));
  EXPECT_TRUE(reading.caller.returns(Completion::Wait::kInterrupted));
  reading.gate.open();
  EXPECT_TRUE(reading.caller.request().answered());
  EXPECT_TRUE(answers_others(reading.owner));
}

TEST(ServerWake, ACallerWhoReadsIsWokenLikeEverybody) {
  Reading reading;
  EXPECT_TRUE(reading.caller.request().cancel(reading.owner.engine, true));
  EXPECT_TRUE(reading.caller.returns(Completion::Wait::kDone));
  reading.gate.open();
  EXPECT_TRUE(answers_others(reading.owner));
}

TEST(ServerWake, ACallerWhoReadsGivesTheNextBatch) {
  Reading reading;
  const RemoteRequest next = sent(reading.owner.engine, {3});
  reading.gate.open();
  EXPECT_TRUE(reading.caller.returns(Completion::Wait::kDone));
  EXPECT_TRUE(next.answered());
}

TEST(ServerWake, TheThreadHearsOfATimeThatACallerWhoReadsLeavesToIt) {
  Reading reading(kOneWorker);
  reading.owner.engine.configure({.policy = PolicyKind::kWindow});
  const RemoteRequest next = sent(reading.owner.engine, {3});
  reading.gate.open();
  EXPECT_TRUE(next.answered()) << "its window is over, and nobody else comes";
}

TEST(ServerWake, ACallerMayReadTheLastAnswerOfAWorker) {
  Reading reading;
  reading.owner.server->retire_worker(reading.worker);
  EXPECT_TRUE(reading.owner.next_is(Server::Event::Kind::kRetired, reading.worker));
  reading.gate.open();
  EXPECT_TRUE(reading.caller.returns(Completion::Wait::kDone));
  EXPECT_TRUE(reading.caller.request().answered());
  EXPECT_TRUE(reading.owner.next_is(Server::Event::Kind::kGone, reading.worker));
}

// While the caller waits to read the answer of a worker that ends with this model, and then for that of another one.
void runs_on_another(const Model& model) {
  Reading reading(kServed, model);
  Gate second;
  reading.owner.add_ready(second.before());
  reading.gate.open();
  EXPECT_TRUE(second.entered());
  EXPECT_TRUE(reading.caller.comes_to_rest()) << "the end of the first can be read for ever";
  second.open();
  EXPECT_TRUE(reading.caller.returns(Completion::Wait::kDone));
  EXPECT_TRUE(reading.caller.request().answered());
  EXPECT_TRUE(answers_others(reading.owner));
}

TEST(ServerWake, ABatchWhoseWorkerDiesWhileItsCallerReadsRunsOnAnother) {
  runs_on_another([](const auto&, auto&) { return false; });
}

TEST(ServerWake, SoDoesOneWhoseWorkerAnswersWhatIsNoAnswer) {
  runs_on_another([](const auto&, auto&) { return true; });
}

TEST(ServerWake, AServerThatStopsEndsTheWaitOfACallerWhoReads) {
  Reading reading;
  reading.owner.server->stop();
  EXPECT_TRUE(reading.caller.returns(Completion::Wait::kDone));
  EXPECT_EQ(reading.caller.request().request().outcome, Outcome::kClosed);
  reading.gate.open();
}

TEST(ServerWake, ASecondCallerSleepsLikeEverybodyWhileOneReads) {
  Gate gate;
  Owner owner;
  owner.add_ready(gate.before());
  owner.add_ready(gate.before());
  const LoneCaller first(owner);
  EXPECT_TRUE(gate.entered(1));
  const LoneCaller second(owner);
  EXPECT_TRUE(gate.entered(2));
  EXPECT_TRUE(first.sleeps() && second.sleeps());
  gate.open();
  EXPECT_TRUE(first.returns(Completion::Wait::kDone) && second.returns(Completion::Wait::kDone));
  EXPECT_TRUE(first.request().answered() && second.request().answered());
  EXPECT_TRUE(answers_others(owner));
}

TEST(ServerWake, TheThreadHearsOfATimeBeforeWhichItMustNotSleep) {
  Owner owner({.batch_size = 8, .max_latency = milliseconds(1), .policy = PolicyKind::kWindow, .workers = 1});
  owner.add_ready();
  for (int i = 0; i < 100; ++i) {
    const RemoteRequest request({i});
    ASSERT_TRUE(request.submit(owner.engine, owner.server.get()));
    ASSERT_TRUE(request.answered()) << "its window is over, and nobody else comes";
  }
}

TEST(ServerWake, DoesNothingForAServerThatWasStopped) {
  Owner owner;
  owner.add_ready();
  owner.server->stop();
  const RemoteRequest request({1});
  ASSERT_TRUE(request.submit(owner.engine, owner.server.get()));
  EXPECT_FALSE(request.done());
  abort_remote(owner.engine);
  EXPECT_TRUE(request.ends_as(Outcome::kClosed));
}

TEST(ServerWake, WakesWhoeverElseIsToBeWoken) {
  Owner owner;
  Engine other(kServed);
  Sleeping sleeping;
  Engine::IdleWorker worker(sleeping.waiter());
  CloseReason reason{};
  TimePoint until;
  ASSERT_EQ(other.start_waiting(worker, reason, until), Engine::Ready::kNotYet);
  const RemoteRequest request({1});
  ASSERT_TRUE(request.submit(other, owner.server.get()));
  EXPECT_EQ(sleeping.waiter().parker.park(Clock::now() + kPatience), Parker::Wake::kUnparked);
  other.stop_waiting(worker);
  abort_remote(other);
}

}  // namespace
}  // namespace service_streamer::support
