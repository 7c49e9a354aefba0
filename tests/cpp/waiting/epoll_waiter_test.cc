// Waiters of threads that sleep in epoll. The wake-up is a write to an eventfd.

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>

#include "support/ipc.h"
#include "support/threads.h"

namespace service_streamer::support {
namespace {

// Sleeps in an epoll that watches one waiter, as an IO thread does.
class Sleeper {
 public:
  Sleeper() : waiter_(WaiterPool::acquire_with_event(event_)), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    epoll_event watched{.events = EPOLLIN | EPOLLET, .data = {}};
    EXPECT_EQ(epoll_ctl(epoll_, EPOLL_CTL_ADD, event_, &watched), 0);
  }
  ~Sleeper() {
    WaiterPool::release_with_event(waiter_);
    ::close(epoll_);
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  Parker& parker() { return waiter_.parker; }
  int event() const { return event_; }

  bool readable(int timeout_ms = 0) const {
    epoll_event got{};
    return epoll_wait(epoll_, &got, 1, timeout_ms) == 1;
  }
  // Sleeps once. Returns true if it was woken by unpark().
  bool sleep(int timeout_ms = -1) {
    const bool may_sleep = parker().begin_sleep();
    readable(may_sleep ? timeout_ms : 0);
    return parker().end_sleep();
  }

 private:
  int event_ = -1;
  Waiter& waiter_;
  const int epoll_;
};

TEST(EpollWaiter, AWakeUpBeforeTheSleepIsKeptWithoutASystemCall) {
  Sleeper sleeper;
  sleeper.readable();  // clears the event of an earlier test
  sleeper.parker().unpark();
  EXPECT_FALSE(sleeper.readable());
  EXPECT_TRUE(sleeper.sleep()) << "without sleeping";
  EXPECT_FALSE(sleeper.sleep(0)) << "a wake-up is reported once";
}

TEST(EpollWaiter, OneSleepCausesOneWrite) {
  Sleeper sleeper;
  sleeper.readable();
  ASSERT_TRUE(sleeper.parker().begin_sleep());
  for (int i = 0; i < 3; ++i) sleeper.parker().unpark();
  EXPECT_TRUE(sleeper.readable());
  EXPECT_FALSE(sleeper.readable()) << "an unread event is reported once";
  EXPECT_TRUE(sleeper.parker().end_sleep());
  EXPECT_FALSE(sleeper.sleep(0));
}

TEST(EpollWaiter, WakesAThreadThatSleeps) {
  Sleeper sleeper;
  std::atomic<int> rounds{0};
  std::atomic<bool> over{false};
  constexpr int kRounds = 2000 / kStressShare;
  Thread thread([&] {
    while (rounds < kRounds && !over) {
      if (sleeper.sleep()) ++rounds;
    }
  });
  const std::shared_ptr<void> end(nullptr, [&](void*) {  // also after a failure
    over = true;
    sleeper.parker().unpark();
  });
  for (int round = 0; round < kRounds; ++round) {
    ASSERT_TRUE(eventually([&] { return rounds >= round; }));
    sleeper.parker().unpark();
  }
  EXPECT_TRUE(eventually([&] { return thread.finished(); })) << "a wake-up was lost";
}

TEST(EpollWaiter, ALateWakeUpIsSpuriousForTheNextUser) {
  Parker* late = nullptr;
  {
    Sleeper sleeper;
    late = &sleeper.parker();
  }
  late->unpark();
  Sleeper next;
  EXPECT_EQ(&next.parker(), late) << "waiters are reused";
  EXPECT_TRUE(next.sleep());
}

TEST(EpollWaiter, OnlyAsManyAreMadeAsAreInUseAtOnce) {
  const std::size_t descriptors = ipc::support::open_descriptors();
  {
    const auto acquire_and_release = [] {
      for (int i = 0; i < 50'000 / kStressShare; ++i) {
        int event = -1;
        WaiterPool::release_with_event(WaiterPool::acquire_with_event(event));
      }
    };
    const Thread one(acquire_and_release);
    const Thread other(acquire_and_release);
  }
  EXPECT_LE(ipc::support::open_descriptors(), descriptors + 2);
}

TEST(EpollWaiter, AForkedChildGetsNoWaiterOfItsParent) {
  int parents = -1;
  {
    Sleeper spare;
    parents = spare.event();
  }
  const pid_t child = fork();
  if (child == 0) {
    int event = -1;
    WaiterPool::acquire_with_event(event);
    _exit(event == parents ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace service_streamer::support
