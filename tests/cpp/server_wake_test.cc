// Callers who do the work of the server's thread while that sleeps.

#include <gtest/gtest.h>

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
