// Calling threads that do the work of the server's thread while that sleeps: they send their lone request to a worker,
// and receive its reply.

#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "support/server.h"

namespace service_streamer::support {
namespace {

using std::chrono::milliseconds;

// How often the server's thread has gone to sleep. Asked while it sleeps.
std::string sleeps_of_the_server() {
  EXPECT_TRUE(eventually(io_thread_sleeps));
  return io_thread("voluntary_ctxt_switches");
}

// A caller in a thread of its own, which asks while the server's thread sleeps.
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

// A lone caller that waits for the reply of the only worker, which waits for the gate.
struct Reading {
  explicit Reading(const Model& model = add_one) : worker(owner.add_ready(gate.before(model))), caller(owner) {
    EXPECT_TRUE(gate.entered());
    EXPECT_TRUE(caller.sleeps());
  }

  Gate gate;
  Owner owner;
  const std::uint32_t worker;
  LoneCaller caller;
};

// Later replies of a worker whose reply a caller waited for are received by either thread.
bool answers_others(Owner& owner) {
  const RemoteRequest received_by_its_caller({1});
  if (received_by_its_caller.ask(owner.engine, *owner.server) != Completion::Wait::kDone) return false;
  const RemoteRequest received_by_the_server = sent(owner.engine, {2});
  return received_by_its_caller.answered() && received_by_the_server.answered();
}

// Not in every try: the thread may still be about to sleep, or to wake for what the worker sent before.
TEST(ServerLoneCaller, DoesNotWakeTheServersThread) {
  EXPECT_TRUE(eventually([] {
    Owner owner({.batch_size = 8, .policy = PolicyKind::kAdaptive, .workers = 2});
    owner.add_ready();
    const std::string before = sleeps_of_the_server();
    for (int i = 0; i < 20; ++i) {
      const RemoteRequest request({i});
      EXPECT_EQ(request.ask(owner.engine, *owner.server), Completion::Wait::kDone);
      EXPECT_TRUE(request.answered());
    }
    return sleeps_of_the_server() == before;
  }));
}

TEST(ServerLoneCaller, LeavesTheReplyToTheServerIfItGivesUp) {
  Gate gate;
  Owner owner;
  owner.add_ready(gate.before());
  const LoneCaller caller(owner, milliseconds(1));
  EXPECT_TRUE(caller.returns(Completion::Wait::kTimeout));
  gate.open();
  EXPECT_TRUE(caller.request().answered());
  EXPECT_TRUE(answers_others(owner));
}

TEST(ServerLoneCaller, LeavesTheReplyToTheServerAfterASignal) {
  Reading reading;
  EXPECT_TRUE(reading.caller.thread().interrupt_until([&] { return reading.caller.thread().finished(); }));
  EXPECT_TRUE(reading.caller.returns(Completion::Wait::kInterrupted));
  reading.gate.open();
  EXPECT_TRUE(reading.caller.request().answered());
  EXPECT_TRUE(answers_others(reading.owner));
}

TEST(ServerLoneCaller, WakesIfItsRequestEndsOtherwise) {
  Reading reading;
  EXPECT_TRUE(reading.caller.request().cancel(reading.owner.engine, true));
  EXPECT_TRUE(reading.caller.returns(Completion::Wait::kDone));
  reading.gate.open();
  EXPECT_TRUE(answers_others(reading.owner));
}

TEST(ServerLoneCaller, GivesTheWorkerItsNextBatch) {
  Reading reading;
  const RemoteRequest next = sent(reading.owner.engine, {3});
  reading.gate.open();
  EXPECT_TRUE(reading.caller.returns(Completion::Wait::kDone));
  EXPECT_TRUE(next.answered());
}

TEST(ServerLoneCaller, LeavesTimesToTheServer) {
  Reading reading;
  reading.owner.engine.configure({.max_latency = milliseconds(1), .policy = PolicyKind::kWindow});
  const RemoteRequest next = sent(reading.owner.engine, {3});
  reading.gate.open();
  EXPECT_TRUE(next.answered()) << "its window is over, and no thread comes";
  for (int i = 0; i < 20; ++i) {
    const RemoteRequest request({i});
    EXPECT_EQ(request.ask(reading.owner.engine, *reading.owner.server), Completion::Wait::kDone);
  }
}

TEST(ServerLoneCaller, ReceivesTheLastReplyOfARetiredWorker) {
  Reading reading;
  reading.owner.server->retire_worker(reading.worker);
  EXPECT_TRUE(reading.owner.next_is(Server::Event::Kind::kRetired, reading.worker));
  reading.gate.open();
  EXPECT_TRUE(reading.caller.returns(Completion::Wait::kDone));
  EXPECT_TRUE(reading.caller.request().answered());
  EXPECT_TRUE(reading.owner.next_is(Server::Event::Kind::kGone, reading.worker));
}

// The model ends the worker while the caller waits for its reply; the batch runs on another one.
void runs_on_another(const Model& model) {
  Reading reading(model);
  Gate second;
  reading.owner.add_ready(second.before());
  reading.gate.open();
  EXPECT_TRUE(second.entered());
  EXPECT_TRUE(reading.caller.comes_to_rest()) << "the end of the first socket stays readable";
  second.open();
  EXPECT_TRUE(reading.caller.returns(Completion::Wait::kDone));
  EXPECT_TRUE(reading.caller.request().answered());
  EXPECT_TRUE(answers_others(reading.owner));
}

TEST(ServerLoneCaller, IsAnsweredByAnotherWorkerIfTheFirstDies) {
  runs_on_another([](const auto&, auto&) { return false; });
}

TEST(ServerLoneCaller, IsAnsweredByAnotherWorkerIfTheFirstSendsNoValidReply) {
  runs_on_another([](const auto&, auto&) { return true; });
}

TEST(ServerLoneCaller, EndsIfTheServerStops) {
  Reading reading;
  reading.owner.server->stop();
  EXPECT_TRUE(reading.caller.returns(Completion::Wait::kDone));
  EXPECT_EQ(reading.caller.request().request().outcome, Outcome::kClosed);
  reading.gate.open();
  const RemoteRequest late({1});
  EXPECT_EQ(late.ask(reading.owner.engine, *reading.owner.server, milliseconds(1)), Completion::Wait::kTimeout);
}

TEST(ServerLoneCaller, IsTheOnlyThreadThatWaitsAtASocket) {
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

}  // namespace
}  // namespace service_streamer::support
