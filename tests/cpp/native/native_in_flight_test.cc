// A worker whose runner has a depth of two: when batches are launched, and that each is answered correctly beside
// others.

#include <gtest/gtest.h>

#include <algorithm>
#include <latch>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "service_streamer/native/workers.h"
#include "support/native.h"
#include "support/recording.h"

namespace service_streamer::support {
namespace {

using Numbers = std::vector<int>;

// Adds 1 to each item. Batches are launched at once, and finished when the test allows it.
class DeepModel final : public native::Model {
 public:
  Look at_launch;
  Look at_finish;
  Look at_run;  // of a batch that runs without another one in flight

  std::unique_ptr<native::Runner> make_runner() override { return std::make_unique<Runner>(*this); }

  // What happened, in order: "launch 1 2", "finish 1 2", "run 1".
  std::vector<std::string> journal() const {
    const std::lock_guard lock(mutex_);
    return journal_;
  }
  bool has_seen(const std::string& entry) const {
    const std::vector<std::string> entries = journal();
    return std::find(entries.begin(), entries.end(), entry) != entries.end();
  }

 private:
  void note(std::string entry, const Numbers& numbers, const Look& look) {
    for (const int number : numbers) entry += " " + std::to_string(number);
    {
      const std::lock_guard lock(mutex_);
      journal_.push_back(entry);
    }
    if (look) look(numbers);
  }

  static Numbers all_of(std::span<const native::ItemRange> ranges) {
    Numbers all;
    for (const native::ItemRange& range : ranges) {
      for (const int number : numbers_of(range)) all.push_back(number);
    }
    return all;
  }

  static void answer(std::span<const native::ItemRange> ranges, std::span<std::unique_ptr<native::Outputs>> outputs) {
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      Numbers numbers = numbers_of(ranges[i]);
      for (int& number : numbers) ++number;
      outputs[i] = std::make_unique<IntOutputs>(std::move(numbers));
    }
  }

  class LaunchedBatch final : public native::LaunchedBatch {
   public:
    LaunchedBatch(DeepModel& model, std::span<const native::ItemRange> ranges)
        : model_(model), ranges_(ranges.begin(), ranges.end()) {}

    void finish(std::span<std::unique_ptr<native::Outputs>> outputs) override {
      model_.note("finish", all_of(ranges_), model_.at_finish);
      answer(ranges_, outputs);
    }

   private:
    DeepModel& model_;
    const std::vector<native::ItemRange> ranges_;
  };

  class Runner final : public native::Runner {
   public:
    explicit Runner(DeepModel& model) : model_(model) {}

    std::size_t depth() const override { return 2; }
    void run(std::span<const native::ItemRange> ranges, std::span<std::unique_ptr<native::Outputs>> outputs) override {
      model_.note("run", all_of(ranges), model_.at_run);
      answer(ranges, outputs);
    }
    std::unique_ptr<native::LaunchedBatch> launch(std::span<const native::ItemRange> ranges) override {
      const native::PhaseRange range(phases.get(), LoggedEvent::Kind::kCollated);
      model_.note("launch", all_of(ranges), model_.at_launch);
      return std::make_unique<LaunchedBatch>(model_, ranges);
    }

   private:
    DeepModel& model_;
  };

  mutable std::mutex mutex_;
  std::vector<std::string> journal_;
};

constexpr EngineOptions kPairs{.batch_size = 2, .policy = PolicyKind::kGreedy};

// Serves batches of two items. The first batch is not finished until the test opens the gate.
class InFlight : public testing::Test {
 protected:
  InFlight() {
    model->at_finish = [this](const Numbers& numbers) {
      if (numbers.front() == 1) let_go.wait();
    };
  }

  std::latch let_go{1};
  const std::shared_ptr<DeepModel> model = std::make_shared<DeepModel>();
  NativeServing serving{model, {.isolation_budget = 1e9}, kPairs};  // a busy machine must not use it up
};

TEST_F(InFlight, AFullBatchIsLaunchedBeforeThePreviousOneIsFinished) {
  const NativeRequest first = serving.sent({1, 2});
  const NativeRequest second = serving.sent({3, 4});
  const NativeRequest third = serving.sent({5, 6});
  serving.start();
  EXPECT_TRUE(eventually([&] { return model->has_seen("finish 1 2"); }));
  EXPECT_EQ(model->journal(), (std::vector<std::string>{"launch 1 2", "launch 3 4", "finish 1 2"}));
  EXPECT_EQ(serving.engine.stats().running_batches, 2);
  let_go.count_down();
  for (const NativeRequest* request : {&first, &second, &third}) EXPECT_TRUE(request->answered());
  EXPECT_EQ(model->journal(), (std::vector<std::string>{"launch 1 2", "launch 3 4", "finish 1 2", "launch 5 6",
                                                        "finish 3 4", "finish 5 6"}));
}

TEST_F(InFlight, ABatchThatCanGrowIsNotLaunchedAndDoesNotDelayTheOther) {
  const NativeRequest first = serving.sent({1, 2});
  const NativeRequest second = serving.sent({3});
  let_go.count_down();
  serving.start();
  EXPECT_TRUE(first.answered());
  EXPECT_TRUE(second.answered());
  EXPECT_EQ(model->journal(), (std::vector<std::string>{"launch 1 2", "finish 1 2", "launch 3", "finish 3"}));
}

TEST_F(InFlight, AFailedBatchRunsAgainAloneAfterTheOthersAreAnswered) {
  model->at_finish = [](const Numbers& numbers) {
    if (numbers.front() == 1) throw std::runtime_error("bad");
  };
  model->at_run = [](const Numbers& numbers) {
    if (numbers.front() == 1) throw std::runtime_error("bad");
  };
  const NativeRequest guilty = serving.sent({1});
  const NativeRequest innocent = serving.sent({2});
  const NativeRequest other = serving.sent({3, 4});
  serving.start();
  EXPECT_TRUE(guilty.ends_as(Outcome::kFailed));
  EXPECT_EQ(guilty.call().failure.message, "bad");
  EXPECT_TRUE(innocent.answered());
  EXPECT_TRUE(other.answered());
  EXPECT_EQ(model->journal(),
            (std::vector<std::string>{"launch 1 2", "launch 3 4", "finish 1 2", "finish 3 4", "run 1", "run 2"}));
}

TEST_F(InFlight, ABatchThatCannotBeLaunchedRunsAgainAlone) {
  model->at_launch = [](const Numbers& numbers) {
    if (numbers.front() == 3) throw std::runtime_error("bad");
  };
  const NativeRequest first = serving.sent({1, 2});
  const NativeRequest second = serving.sent({3});
  const NativeRequest third = serving.sent({4});
  let_go.count_down();
  serving.start();
  for (const NativeRequest* request : {&first, &second, &third}) EXPECT_TRUE(request->answered());
  EXPECT_EQ(model->journal(), (std::vector<std::string>{"launch 1 2", "launch 3 4", "finish 1 2", "run 3", "run 4"}));
}

TEST_F(InFlight, ABatchWithoutMemoryBesideAnotherRunsAgainWithoutTheOther) {
  model->at_launch = [](const Numbers& numbers) {
    if (numbers.front() == 3) throw std::bad_alloc();
  };
  const NativeRequest first = serving.sent({1, 2});
  const NativeRequest second = serving.sent({3});
  const NativeRequest third = serving.sent({4});
  let_go.count_down();
  serving.start();
  for (const NativeRequest* request : {&first, &second, &third}) EXPECT_TRUE(request->answered());
  EXPECT_EQ(model->journal(), (std::vector<std::string>{"launch 1 2", "launch 3 4", "finish 1 2", "run 3 4"}));
}

TEST_F(InFlight, ABatchWithoutMemoryThatRanAloneIsSplit) {
  model->at_launch = [](const Numbers& numbers) {
    if (numbers.size() > 1) throw std::bad_alloc();
  };
  const NativeRequest request = serving.sent({3, 4});
  serving.start();
  EXPECT_TRUE(request.answered());
  EXPECT_EQ(model->journal(), (std::vector<std::string>{"launch 3 4", "run 3", "run 4"}));
}

TEST_F(InFlight, CloseAnswersBatchesInFlight) {
  const NativeRequest first = serving.sent({1, 2});
  const NativeRequest second = serving.sent({3, 4});
  const NativeRequest third = serving.sent({5, 6});
  serving.start();
  EXPECT_TRUE(eventually([&] { return model->has_seen("finish 1 2"); }));
  serving.close(false);
  EXPECT_TRUE(third.ends_as(Outcome::kClosed));
  let_go.count_down();
  serving.finish(false);
  EXPECT_TRUE(first.answered());
  EXPECT_TRUE(second.answered());
}

TEST_F(InFlight, DrainingLaunchesTheRemainingBatches) {
  const NativeRequest first = serving.sent({1, 2});
  const NativeRequest second = serving.sent({3});
  serving.close(true);
  serving.start();
  EXPECT_TRUE(eventually([&] { return model->has_seen("finish 1 2"); }));
  EXPECT_TRUE(model->has_seen("launch 3")) << "nothing will come to it any more";
  let_go.count_down();
  serving.finish(true);
  EXPECT_TRUE(first.answered());
  EXPECT_TRUE(second.answered());
}

TEST_F(InFlight, ItemsStayUntilTheirBatchIsFinished) {
  const NativeRequest first = serving.sent({1, 2});
  const NativeRequest second = serving.sent({3, 4});
  serving.start();
  EXPECT_TRUE(eventually([&] { return model->has_seen("finish 1 2"); }));
  EndedRequests ended;
  ASSERT_TRUE(serving.engine.end_early(second.call().request, Outcome::kCancelled, true, ended));
  calls::publish(ended);
  EXPECT_TRUE(second.has_items()) << "the device may be at them";
  let_go.count_down();
  EXPECT_TRUE(eventually([&] { return !second.has_items(); }));
}

TEST_F(InFlight, TheTimeOfABatchIsNotCountedAgainForTheNextOne) {
  const TimePoint begin = Clock::now();
  const NativeRequest first = serving.sent({1, 2});
  const NativeRequest second = serving.sent({3, 4});
  serving.start();
  EXPECT_TRUE(eventually([&] { return model->has_seen("finish 1 2"); }));
  pass_time_until(Clock::now() + std::chrono::milliseconds(20));
  let_go.count_down();
  EXPECT_TRUE(first.answered());
  EXPECT_TRUE(second.answered());
  serving.finish(true);
  const DurationSummary service = serving.engine.stats().service_time;
  ASSERT_EQ(service.count, 2U);
  EXPECT_LE(service.total, Clock::now() - begin);
}

TEST_F(InFlight, EachBatchHasThePhasesOfItsLaunch) {
  const NativeRequest first = serving.sent({1, 2});
  const NativeRequest second = serving.sent({3, 4});
  const std::uint64_t recording = serving.engine.recorder().start(std::chrono::minutes(1), 100);
  serving.start();
  let_go.count_down();
  EXPECT_TRUE(first.answered());
  EXPECT_TRUE(second.answered());
  const std::string events = serving.engine.recorder().finish(recording);
  const std::vector<LoggedEvent> cuts = events_in(events, LoggedEvent::Kind::kCut);
  const std::vector<LoggedEvent> collated = events_in(events, LoggedEvent::Kind::kCollated);
  ASSERT_EQ(cuts.size(), 2U);
  ASSERT_EQ(collated.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(collated[i].batch, cuts[i].batch);
    EXPECT_GE(collated[i].time - static_cast<std::int64_t>(collated[i].value), cuts[i].time);
  }
}

TEST_F(InFlight, ManyCallersGetTheirOutputs) {
  let_go.count_down();
  serving.start();
  EXPECT_EQ(wrong_answers_to_many(serving), 0);
}

}  // namespace
}  // namespace service_streamer::support
