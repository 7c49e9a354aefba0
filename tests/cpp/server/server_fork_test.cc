// Forked children of a process with a Server: they keep no descriptor of it, and may become its clients.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <memory>

#include "support/server.h"

namespace service_streamer::support {
namespace {

// ThreadSanitizer does not support threads in a forked child of a process with threads. With GCC 12's AddressSanitizer
// the allocator can stay locked in the child, if another thread was using it at the fork.
constexpr bool kMayFork = !kSanitized;

// A child process; the destructor kills it.
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

// Runs in a forked child. It does not use gtest: a thread of the parent may have held a lock of it.
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
    // Does not use WaiterPool. It is guarded by the GIL in Python, so there no fork finds it locked; here one could.
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

TEST(ServerFork, AChildThatExitsOrDestroysItsCopyChangesNothing) {
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

TEST(ServerFork, AChildThatLivesOnDoesNotKeepItsParentsSocketsOpen) {
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
    EXPECT_TRUE(eventually([&] { return owner.workers[0]->finished(); })) << "the worker does not see the end of file";
  }
}

TEST(ServerFork, AChildOfAClientMakesItsOwnLink) {
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
