// Everything at the same time: producers that cancel, give up and drop requests, workers that fail, lose and split
// batches, deadlines, changes of the options, and a close in the middle. The order depends on the scheduler; the
// random choices come from fixed seeds.

#include <gtest/gtest.h>

#include <deque>
#include <numeric>
#include <string>

#include "simulation/random.h"
#include "support/threads.h"

namespace service_streamer::support {
namespace {

using simulation::Random;
using std::chrono::microseconds;
using Admission = Engine::Admission;
using Wait = Completion::Wait;

constexpr int kRounds = 60 / kStressShare;
constexpr std::uint64_t kProducers = 4;
constexpr int kCallsOfEach = 1'500;

enum class Ending { kAllServed, kDrain, kNoDrain, kAbort };

PolicyKind any_policy(Random& random) {
  return static_cast<PolicyKind>(random.between(0, 2));
}

Duration up_to(int most, Random& random) {
  return microseconds(random.between(0, most));
}

EngineOptions any_options(Random& random) {
  return {.batch_size = static_cast<std::size_t>(random.between(1, 16)),
          .max_latency = up_to(400, random),
          .policy = any_policy(random),
          .workers = random.between(1, 3),
          .max_queue = static_cast<std::size_t>(random.between(1, 64)),
          .overflow = random.uniform() < 0.7 ? Overflow::kBlock : Overflow::kReject};
}

class Round {
 public:
  explicit Round(std::uint64_t seed)
      : seed_(seed),
        random_(seed),
        ending_(static_cast<Ending>(seed % 4)),
        options_(any_options(random_)),
        engine_(options_) {}

  void run() {
    {
      Thread watcher([this] { watch(); });
      std::deque<Thread> workers;
      for (std::uint64_t i = 0; workers.size() < static_cast<std::size_t>(options_.workers); ++i) {
        workers.emplace_back([this, i] { work(seed_ * 100 + 10 + i); });
      }
      std::deque<Thread> producers;
      for (std::uint64_t i = 0; i < kProducers; ++i) producers.emplace_back([this, i] { produce(seed_ * 100 + i); });

      if (ending_ != Ending::kAllServed) {
        const auto part = static_cast<std::uint64_t>(random_.between(1, static_cast<int>(kProducers) * kCallsOfEach));
        while (accepted_ < part && producing_ > 0) reconfigure();
        end();
      }
      while (producing_ > 0) reconfigure();
      producers.clear();
      forget_shared();
      if (ending_ == Ending::kAllServed) {
        Sleeping sleeping;
        EXPECT_EQ(engine_.wait_until_drained(sleeping.waiter(), Clock::now() + kPatience), Wait::kDone);
      }
      close(engine_, true);
      Sleeping sleeping;
      EXPECT_EQ(engine_.wait_until_drained(sleeping.waiter(), Clock::now() + kPatience), Wait::kDone);
    }
    check();
  }

 private:
  void reconfigure() {
    engine_.configure({.batch_size = static_cast<std::size_t>(random_.between(1, 16)),
                       .max_latency = up_to(400, random_),
                       .policy = any_policy(random_)});
    Parker().park(Clock::now() + microseconds(200));
  }

  void end() {
    close(engine_, ending_ == Ending::kDrain);
    if (ending_ == Ending::kAbort) abort(engine_);
    if (random_.uniform() < 0.3) close(engine_, false);
  }

  void watch() {
    Sleeping sleeping;
    while (engine_.deadline_timer().wait(sleeping.waiter()) != DeadlineTimer::Ready::kClosed) expire(engine_);
  }

  // --- producers ---

  void produce(std::uint64_t seed) {
    Random random(seed);
    Sleeping sleeping;
    std::deque<CallPtr> kept;
    for (int i = 0; i < kCallsOfEach; ++i) {
      CallPtr call = any_call(random);
      Admission admission = submit(engine_, call, random.uniform() < 0.2);
      for (; admission == Admission::kFull; admission = submit(engine_, call)) {
        ++rejected_;
        EXPECT_GE(engine_.retry_after(*call), 0.0);
        std::this_thread::yield();
      }
      if (admission == Admission::kClosed) break;
      ++accepted_;
      if (admission == Admission::kWaiting) wait_for_room(*call, random, sleeping.waiter());
      use(call, random, kept);
    }
    for (const CallPtr& call : kept) expect_end(*call);
    --producing_;
  }

  CallPtr any_call(Random& random) {
    const bool bounded = random.uniform() < 0.3;
    return make_call(static_cast<std::uint32_t>(random.uniform() < 0.9 ? random.between(1, 4) : random.between(5, 80)),
                     {.priority = random.between(-1, 1),
                      .deadline = bounded ? Clock::now() + up_to(2'000, random) : TimePoint::max(),
                      .watched = bounded && random.uniform() < 0.5,
                      .tally = &tally_});
  }

  void wait_for_room(Call& call, Random& random, Waiter& waiter) {
    const bool patient = random.uniform() < 0.7;
    const TimePoint deadline = patient ? call.deadline : Clock::now() + up_to(100, random);
    if (engine_.wait_for_room(call, waiter, deadline) == Wait::kTimeout) {
      end_early(engine_, call, Outcome::kExpired, false);
    }
  }

  void use(CallPtr& call, Random& random, std::deque<CallPtr>& kept) {
    const int what = random.between(0, 9);
    if (what < 4) {  // predict
      if (wait_for(*call, call->deadline) == Wait::kTimeout) end_early(engine_, *call, Outcome::kExpired, true);
      expect_end(*call);
    } else if (what < 6) {  // submit, result later
      kept.push_back(call);
      wait_in_several_threads(call, random);
    } else if (what == 6) {  // give up at about the time of the result
      wait_for(*call, Clock::now() + up_to(300, random));
      if (random.uniform() < 0.5) abandon(engine_, *call);
    } else if (what == 7) {
      cancel(engine_, *call);
    } else if (what == 8 && !kept.empty()) {  // cancel what was submitted long ago
      cancel(engine_, *kept[static_cast<std::size_t>(random.between(0, static_cast<int>(kept.size()) - 1))]);
    }  // else: drop it
    // Only the owner watches such a deadline, and these owners no longer wait or wait without a deadline.
    if (!kept.empty() && kept.back()->watched && !kept.back()->done()) {
      end_early(engine_, *kept.back(), Outcome::kExpired, true);
    }
  }

  // Several threads wait for one call and give up at random times.
  void wait_in_several_threads(CallPtr call, Random& random) {
    {
      MutexLock lock(mutex_);
      if (shared_ == nullptr || shared_->done()) shared_ = call;
      call = shared_;
    }
    wait_for(*call, Clock::now() + up_to(200, random));
  }

  void forget_shared() {
    MutexLock lock(mutex_);
    shared_.reset();
  }

  void expect_end(Call& call) {
    EXPECT_EQ(wait_for(call, Clock::now() + kPatience), Wait::kDone);
    EXPECT_EQ(call.publications, 1);
    if (call.outcome == Outcome::kAnswered) {
      EXPECT_TRUE(call.answered());
    }
  }

  // --- workers ---

  void work(std::uint64_t seed) {
    Random random(seed);
    Sleeping sleeping;
    for (;;) {
      CloseReason reason{};
      Engine::Ready ready = engine_.poll(reason);
      if (ready == Engine::Ready::kNotYet) ready = engine_.wait_for_batch(sleeping.waiter(), reason);
      if (ready == Engine::Ready::kClosed) return;
      Batch batch = cut(engine_, reason);
      if (batch.items > 0) serve(batch, random);
    }
  }

  void serve(Batch& batch, Random& random) {
    const int what = random.between(0, 19);
    Batch first;
    if (what < 2) Parker().park(Clock::now() + up_to(200, random));
    if (what == 2) {
      give_back(engine_, batch, Outcome::kFailed);
    } else if (what == 3) {
      give_back(engine_, batch, Outcome::kLost);
    } else if (what < 8 && batch.items > 1) {
      engine_.split(batch, middle_of(batch.ranges), first);
      if (what < 5) {
        engine_.join(batch, first);
        return serve(batch, random);
      }
      if (what == 5 && !postpone(engine_, batch)) return serve(first, random);
      for (Batch* half : {&first, &batch}) {
        if (drop_ended(engine_, *half)) serve(*half, random);
      }
    } else {
      for (RequestRange& range : batch.ranges) range.failed = random.uniform() < 0.03;
      answer(engine_, batch);
    }
  }

  // --- checks at the end ---

  void check() {
    const EngineStats stats = engine_.stats();
    const Counters& counters = stats.counters;
    EXPECT_EQ(tally_.alive, 0) << "every call is freed";
    EXPECT_EQ(counters.submitted, accepted_);
    EXPECT_EQ(counters.rejected, rejected_);
    EXPECT_EQ(counters.completed, tally_.of(Outcome::kAnswered));
    EXPECT_EQ(counters.failed, tally_.of(Outcome::kFailed) + tally_.of(Outcome::kLost));
    EXPECT_EQ(counters.cancelled, tally_.of(Outcome::kCancelled));
    EXPECT_EQ(counters.expired, tally_.of(Outcome::kExpired));
    EXPECT_EQ(counters.dropped, tally_.of(Outcome::kClosed));
    EXPECT_EQ(tally_.of(Outcome::kNone), 0U);
    EXPECT_EQ(counters.completed + counters.failed + counters.cancelled + counters.expired + counters.dropped,
              counters.submitted);

    std::uint64_t batches = 0;
    std::uint64_t items = 0;
    for (const auto& [size, count] : counters.batch_sizes) {
      batches += count;
      items += count * size;
    }
    EXPECT_EQ(counters.batches, batches);
    EXPECT_EQ(counters.items, items);
    EXPECT_EQ(std::accumulate(counters.close_reasons.begin(), counters.close_reasons.end(), std::uint64_t{0}), batches);
    EXPECT_EQ(stats.service_time.count, batches);
    EXPECT_LE(stats.queue_time.count, counters.submitted);

    EXPECT_EQ(stats.queued_items, 0U);
    EXPECT_EQ(stats.queued_requests, 0);
    EXPECT_EQ(stats.waiting_requests, 0);
    EXPECT_EQ(stats.running_items, 0U);
    EXPECT_EQ(stats.running_batches, 0);
    EXPECT_EQ(stats.idle_workers, 0);
  }

  const std::uint64_t seed_;
  Random random_;
  const Ending ending_;
  const EngineOptions options_;
  Tally tally_;
  Engine engine_;
  std::atomic<std::uint64_t> accepted_{0};
  std::atomic<std::uint64_t> rejected_{0};
  std::atomic<std::uint64_t> producing_{kProducers};
  Mutex mutex_;
  CallPtr shared_ GUARDED_BY(mutex_);
};

TEST(EngineStress, EveryAcceptedRequestEndsOnceAndIsFreedWhateverHappens) {
  for (std::uint64_t seed = 0; seed < kRounds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Round(seed).run();
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace service_streamer::support
