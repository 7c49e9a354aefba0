#pragma once

// Threads for tests: workers, threads that can be watched and interrupted, and bounded waits.

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "support/call.h"
#include "support/sanitizers.h"

namespace service_streamer::support {

constexpr int kStressShare = kSanitized ? 5 : 1;  // stress tests divide their rounds by this

constexpr Duration kPatience = std::chrono::seconds(20);  // before a test fails; a passing test never waits so long

// Waits until the predicate, an observation of other threads, is true. False: it did not become true in time.
template <typename Predicate>
bool eventually(const Predicate& holds) {
  const TimePoint end = Clock::now() + kPatience;
  while (!holds()) {
    if (Clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

inline void pass_time_until(TimePoint then) {
  EXPECT_TRUE(eventually([&] { return Clock::now() >= then; }));
}

// Waits until threads are idle: they are asleep, and the count of their wake-ups does not change for `time`. Threads
// may go to sleep late, so it tries again.
template <typename Count, typename Asleep>
bool come_to_rest(const Count& wakes, const Asleep& asleep, Duration time) {
  Parker timer;
  return eventually([&] {
    const auto before = wakes();
    timer.park(Clock::now() + time);
    return asleep() && wakes() == before;
  });
}

// A waiter for the calling thread. A wake-up that its last use left unread is consumed: it would end the first sleep.
class Sleeping {
 public:
  Sleeping() : waiter_(WaiterPool::acquire()) { waiter_.parker.park(TimePoint{}); }
  ~Sleeping() { WaiterPool::release(waiter_); }
  Sleeping(const Sleeping&) = delete;
  Sleeping& operator=(const Sleeping&) = delete;

  Waiter& waiter() { return waiter_; }

 private:
  Waiter& waiter_;
};

inline Completion::Wait wait_for(Call& call, TimePoint deadline = TimePoint::max()) {
  Sleeping sleeping;
  return call.completion.wait(sleeping.waiter(), deadline);
}

// A thread that joins in its destructor, and can be observed.
class Thread {
 public:
  template <typename Body>
  explicit Thread(Body body)
      : thread_([this, body = std::move(body)] {
          id_ = gettid();
          body();
          finished_ = true;
        }) {}

  bool finished() const { return finished_; }

  // Returns whether it sleeps in the kernel. A test must also pass if it does not.
  bool asleep() const {
    if (id_ == 0) return false;
    std::ifstream file("/proc/self/task/" + std::to_string(id_) + "/stat");
    std::string text;
    std::getline(file, text);
    const std::size_t name_end = text.rfind(')');
    return name_end != std::string::npos && text.compare(name_end, 3, ") S") == 0;
  }

  // The number of its voluntary context switches.
  long voluntary_switches() const {
    std::ifstream file("/proc/self/task/" + std::to_string(id_) + "/status");
    const std::string key = "voluntary_ctxt_switches:";
    for (std::string line; std::getline(file, line);) {
      if (line.rfind(key, 0) == 0) return std::stol(line.substr(key.size()));
    }
    return -1;
  }

  // Waits until it has woken and sleeps again, since it had this number of switches.
  bool slept_again_since(long switches) const {
    return eventually([this, switches] { return voluntary_switches() > switches && asleep(); });
  }

  // Sends it signals until the predicate is true. One signal is not enough: it may come just before
  // the sleep, and then interrupts nothing.
  template <typename Predicate>
  bool interrupt_until(const Predicate& holds) {
    struct sigaction action{};
    action.sa_handler = [](int) {};  // without SA_RESTART
    sigaction(SIGUSR1, &action, nullptr);
    return eventually([&] {
      if (holds()) return true;
      pthread_kill(thread_.native_handle(), SIGUSR1);
      return holds();
    });
  }

 private:
  std::atomic<pid_t> id_{0};
  std::atomic<bool> finished_{false};
  std::jthread thread_;
};

// A thread that takes batches until the engine is closed. `model` must complete each batch.
class Worker {
 public:
  using Model = std::function<void(Engine&, Batch&)>;

  explicit Worker(Engine& engine, Model model = answer)
      : engine_(engine), model_(std::move(model)), thread_([this] { run(); }) {}

  // Ends all requests, so that no thread waits forever after a failure.
  ~Worker() {
    close(engine_, false);
    abort(engine_);
  }

  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  int batches() const { return batches_; }
  Thread& thread() { return thread_; }

 private:
  void run() {
    Sleeping sleeping;
    for (;;) {
      CloseReason reason{};
      Engine::Ready ready = engine_.poll(reason);
      if (ready == Engine::Ready::kNotYet) ready = engine_.wait_for_batch(sleeping.waiter(), reason);
      if (ready == Engine::Ready::kClosed) return;
      if (ready != Engine::Ready::kBatch) continue;
      Batch batch = cut(engine_, reason);
      if (batch.items == 0) continue;
      ++batches_;
      model_(engine_, batch);
    }
  }

  Engine& engine_;
  const Model model_;
  std::atomic<int> batches_{0};
  Thread thread_;
};

inline bool idle_workers_are(const Engine& engine, int count) {
  return eventually([&] { return engine.stats().idle_workers == count; });
}

}  // namespace service_streamer::support
