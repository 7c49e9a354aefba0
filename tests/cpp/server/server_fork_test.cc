// Owners that fork: their children keep nothing of theirs, and may become their clients.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <memory>

#include "support/server.h"

namespace service_streamer::support {
namespace {

// ThreadSanitizer does not follow threads into children of processes with threads; and the allocator of GCC 12's
// AddressSanitizer stays locked in a child for ever where another thread was just in it, unlike malloc.
constexpr bool kMayFork = !kSanitized;

// A child process; it is gone when this is.
class Child {
 public:
  explicit Child(const std::function<bool()>& body) : pid_(fork()) {
    if (pid_ == 0) _exit(body() ? 0 : 1);
  }
  ~Child() {
    if (pid_ < 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  bool succeeded() {
    int status = -1;
    return waitpid(std::exchange(pid_, -1), &status, 0) > 0 && status == 0;
  }

 private:
  pid_t pid_;
};

// In a child whose parent had threads that allocate: no gtest, only plain work.
bool calls_through(const std::string& address) {
  auto* engine = new Engine({.policy = PolicyKind::kGreedy, .max_queue = 100});
  auto* client_link = new ipc::ClientLink(*engine, address);
  client_link->start();
  for (int i = 0; i < 20; ++i) {
    const RemoteRequest request({i, i + 1});
    if (!request.submit(*engine) || !request.answered()) return false;
  }
  client_link->stop();
  return true;
}

TEST(ServerFork, ChildrenBecomeClientsOfTheirParent) {
  if (!kMayFork) GTEST_SKIP();
  Owner owner;
  owner.add_ready();
  std::atomic<bool> stop{false};
  Thread busy([&] {
    // Without the pool of waiters, which Python's threads only use with the GIL: no fork finds it locked.
    while (!stop) {
      const RemoteRequest request = sent(owner.engine, {1});
      while (!request.done()) std::this_thread::yield();
    }
  });
  std::vector<std::unique_ptr<Child>> children;
  for (int i = 0; i < 4; ++i) {
    children.push_back(std::make_unique<Child>([&] { return calls_through(owner.server->address()); }));
  }
  for (const auto& child : children) EXPECT_TRUE(child->succeeded());
  stop = true;
  EXPECT_TRUE(sent(owner.engine, {1}).answered());
}

TEST(ServerFork, AChildThatEndsOrDestroysItsCopyChangesNothing) {
  if (!kMayFork) GTEST_SKIP();
  Owner owner;
  owner.add_ready();
  EXPECT_TRUE(sent(owner.engine, {1}).answered());
  EXPECT_TRUE(Child([&] {
                owner.server.reset();
                return true;
              }).succeeded());
  EXPECT_TRUE(sent(owner.engine, {1}).answered());
}

TEST(ServerFork, AChildThatLivesOnHidesNoDeath) {
  if (!kMayFork) GTEST_SKIP();
  std::unique_ptr<Child> child;
  {
    Owner owner;
    owner.add_ready();
    child = std::make_unique<Child>([] {
      for (;;) pause();
      return true;
    });
    EXPECT_TRUE(sent(owner.engine, {1}).answered());
    owner.server->stop();
    EXPECT_TRUE(eventually([&] { return owner.workers[0]->finished(); })) << "it does not see the end of file";
  }
}

TEST(ServerFork, ARelaysChildMakesItsOwn) {
  if (!kMayFork) GTEST_SKIP();
  Owner owner;
  owner.add_ready();
  Engine engine({.policy = PolicyKind::kGreedy, .max_queue = 100});
  ipc::ClientLink client_link(engine, owner.server->address());
  client_link.start();
  EXPECT_TRUE(sent(engine, {1}).answered());
  EXPECT_TRUE(Child([&] { return calls_through(owner.server->address()); }).succeeded());
  EXPECT_TRUE(sent(engine, {2}).answered());
  client_link.stop();
}

}  // namespace
}  // namespace service_streamer::support
