#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "service_streamer/base/file_descriptor.h"
#include "service_streamer/base/mutex.h"
#include "service_streamer/waiting/parker.h"

namespace service_streamer {
namespace {

using Wake = Parker::Wake;

std::atomic<Semaphore::Maker> own_maker{nullptr};

class ConditionSemaphore final : public Semaphore {
 public:
  Wake wait(TimePoint deadline) override {
    std::unique_lock lock(mutex_);
    while (!posted_) {
      const TimePoint now = Clock::now();
      if (deadline <= now) return Wake::kTimeout;
      // Some libraries turn the deadline into one of another clock, where a far one would overflow.
      woken_.wait_until(lock, std::min(deadline, now + std::chrono::hours(24)));
    }
    posted_ = false;
    return Wake::kUnparked;
  }

  void post() override {
    {
      const std::lock_guard lock(mutex_);
      posted_ = true;
    }
    woken_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable woken_;
  bool posted_ = false;
};

// The threads in wait_on(), each in its own entry. Locked under the ForkLock, so a forked child finds it unlocked.
struct WordSleeper {
  const std::atomic<std::uint32_t>* word;
  Parker parker;
  WordSleeper* previous = nullptr;
  WordSleeper* next = nullptr;
};

class WordSleepers {
 public:
  bool add(WordSleeper& sleeper, std::uint32_t expected) {
    const ForkLock no_fork;
    const MutexLock lock(mutex_);
    forget_parents();
    if (sleeper.word->load(std::memory_order_acquire) != expected) return false;
    sleeper.next = first_;
    if (first_ != nullptr) first_->previous = &sleeper;
    first_ = &sleeper;
    return true;
  }

  void remove(WordSleeper& sleeper) {
    const ForkLock no_fork;
    const MutexLock lock(mutex_);
    (sleeper.previous != nullptr ? sleeper.previous->next : first_) = sleeper.next;
    if (sleeper.next != nullptr) sleeper.next->previous = sleeper.previous;
  }

  void wake(const std::atomic<std::uint32_t>& word) {
    const ForkLock no_fork;
    const MutexLock lock(mutex_);  // so that no sleeper ends meanwhile
    forget_parents();
    for (WordSleeper* each = first_; each != nullptr; each = each->next) {
      if (each->word == &word) each->parker.unpark();
    }
  }

 private:
  // The sleepers at the fork were on the stacks of threads that the child does not have.
  void forget_parents() REQUIRES(mutex_) {
    if (generation_ == ForkLock::generation()) return;
    generation_ = ForkLock::generation();
    first_ = nullptr;
  }

  Mutex mutex_;
  WordSleeper* first_ GUARDED_BY(mutex_) = nullptr;
  std::uint32_t generation_ GUARDED_BY(mutex_) = 0;
};

WordSleepers& word_sleepers() {
  static auto* sleepers = new WordSleepers;  // leaked: threads may wait while the process exits
  return *sleepers;
}

}  // namespace

std::unique_ptr<Semaphore> Semaphore::make() {
  const Maker maker = own_maker.load(std::memory_order_acquire);
  std::unique_ptr<Semaphore> made = maker != nullptr ? maker() : nullptr;
  return made != nullptr ? std::move(made) : std::make_unique<ConditionSemaphore>();
}

void Semaphore::make_by(Maker maker) {
  own_maker.store(maker, std::memory_order_release);
}

Parker::Wake wait_on(std::atomic<std::uint32_t>& word, std::uint32_t expected, TimePoint deadline) {
  WordSleeper sleeper{.word = &word, .parker = {}};
  if (!word_sleepers().add(sleeper, expected)) return Wake::kUnparked;
  const Wake wake = sleeper.parker.park(deadline);
  word_sleepers().remove(sleeper);
  return wake;
}

void wake_all(std::atomic<std::uint32_t>& word) {
  word_sleepers().wake(word);
}

Parker::Wake Parker::park(TimePoint deadline) {
  std::uint32_t expected = kEmpty;
  Wake wake = Wake::kUnparked;
  if (state_.compare_exchange_strong(expected, kParked, std::memory_order_acquire)) {
    // The semaphore may have been posted for an earlier sleep. Only the state says whether unpark() was called.
    do {
      wake = semaphore_->wait(deadline);
    } while (wake == Wake::kUnparked && state_.load(std::memory_order_relaxed) == kParked);
  }
  return state_.exchange(kEmpty, std::memory_order_acquire) == kNotified ? Wake::kUnparked : wake;
}

void Parker::unpark() {
  if (state_.exchange(kNotified, std::memory_order_release) == kParked) semaphore_->post();
}

}  // namespace service_streamer
