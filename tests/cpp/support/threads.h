#pragma once

// Threads of the tests: workers, sleepers that can be watched and interrupted, and bounded waits.

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

constexpr int kStressShare = kSanitized ? 5 : 1;  // of the rounds of a stress test, one in so many is run

constexpr Duration kPatience = std::chrono::seconds(20);  // before a test gives up; no passing one takes it

// Whether the predicate, an observation of what other threads did, comes true.
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

// Whether threads, which may be late to go to sleep, come to rest: for so long none of them wakes, which is counted, and then they
// sleep still. (Who only waits for a core does not.)
template <typename Count, typename Asleep>
bool come_to_rest(const Count& wakes, const Asleep& asleep, Duration time) {
  Parker nobody_calls;
  return eventually([&] {
    const auto before = wakes();
    nobody_calls.park(Clock::now() + time);
    return asleep() && wakes() == before;
  });
}

// A waiter of the calling thread.
class Sleeping {
 public:
  Sleeping() : waiter_(WaiterPool::acquire()) {}
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

// A joining thread that is seen from outside.
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

  // Whether it sleeps in the kernel. For tests that hold either way, and mean less if it does not.
  bool asleep() const {
    if (id_ == 0) return false;
    std::ifstream file("/proc/self/task/" + std::to_string(id_) + "/stat");
    std::string text;
    std::getline(file, text);
    const std::size_t name_end = text.rfind(')');
    return name_end != std::string::npos && text.compare(name_end, 3, ") S") == 0;
  }

  // How often it has given up its core of its own accord.
  long voluntary_switches() const {
    std::ifstream file("/proc/self/task/" + std::to_string(id_) + "/status");
    const std::string key = "voluntary_ctxt_switches:";
    for (std::string line; std::getline(file, line);) {
      if (line.rfind(key, 0) == 0) return std::stol(line.substr(key.size()));
    }
    return -1;
  }

  // Whether it woke and sleeps again, since it had given up its core so often.
  bool slept_again_since(long switches) const {
    return eventually([this, switches] { return voluntary_switches() > switches && asleep(); });
  }

  // Runs a signal handler in it, again and again until it did what the predicate tells: a signal that
  // comes just before the sleep interrupts nothing.
  template <typename Predicate>
  bool interrupt_until(const Predicate& holds) {
    struct sigaction action{};
    action.sa_handler = [](int) {};  // and no SA_RESTART
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

// Takes batches until the engine is closed and hands each to `model`, which must give it back.
class Worker {
 public:
  using Model = std::function<void(Engine&, Batch&)>;

  explicit Worker(Engine& engine, Model model = answer)
      : engine_(engine), model_(std::move(model)), thread_([this] { run(); }) {}

  // Also where a test has failed: nobody is left waiting.
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
