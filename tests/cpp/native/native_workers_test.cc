// Threads that run a native model: batches are answered, guilty requests fail alone, and every request ends.

#include "service_streamer/native/workers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <latch>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/native.h"
#include "support/recording.h"

namespace service_streamer::support {
namespace {

using native::Fault;
using native::RunError;

// Stops a model in its first batch until the test opens the gate.
struct HeldModel {
  std::shared_ptr<IntModel> model() {
    return std::make_shared<IntModel>([this](const std::vector<int>&) {
      running.count_down();
      open.wait();
    });
  }

  std::latch running{1};
  std::latch open{1};
};

TEST(NativeWorkers, AnswerEachRequestWithItsOutputs) {
  const auto model = std::make_shared<IntModel>();
  NativeServing serving(model);
  const auto requests = sent_together(serving, {{1}, {2, 3}, {4}});
  for (const NativeRequest& request : requests) {
    EXPECT_TRUE(request.answered());
    EXPECT_EQ(request.call().request.batch_items, 4U);
  }
  EXPECT_EQ(model->runs, 1);
}

TEST(NativeWorkers, ARequestLargerThanABatchIsJoinedInOrder) {
  const auto model = std::make_shared<IntModel>();
  NativeServing serving(model, {.count = 3});
  std::vector<int> items(100);
  for (int i = 0; i < 100; ++i) items[static_cast<std::size_t>(i)] = i;
  const NativeRequest request = serving.sent(items);
  serving.start();
  EXPECT_TRUE(request.answered());
  EXPECT_GE(model->runs, 100 / 8);
}

TEST(NativeWorkers, ManyCallersGetTheirOutputsFromManyWorkers) {
  NativeServing serving(std::make_shared<IntModel>(), {.count = 2});
  serving.start();
  EXPECT_EQ(wrong_answers_to_many(serving), 0);
}

TEST(NativeWorkers, OnlyTheGuiltyRequestFails) {
  NativeServing serving(std::make_shared<IntModel>(refuse_13));
  const auto requests = sent_together(serving, {{1}, {2}, {13, 3}, {4}});
  ASSERT_TRUE(requests[2].ends_as(Outcome::kFailed));
  EXPECT_EQ(requests[2].call().failure.fault, Fault::kModel);
  EXPECT_EQ(requests[2].call().failure.message, "13 is bad luck") << "without the backtrace";
  for (const std::size_t innocent : {0U, 1U, 3U}) EXPECT_TRUE(requests[innocent].answered());
}

TEST(NativeWorkers, NoInnocentRequestFailsHoweverManyAreGuilty) {
  for (const int guilty : {1, 2, 3, 5, 8, 16}) {
    for (const double budget : {0.0, 8.0}) {
      NativeServing serving(std::make_shared<IntModel>([&](const std::vector<int>& items) {
                              for (const int item : items) {
                                if (item * guilty % 32 < guilty) throw std::runtime_error(std::to_string(item));
                              }
                            }),
                            {.count = 1, .isolation_budget = budget},
                            {.batch_size = 32, .policy = PolicyKind::kGreedy});
      std::vector<std::vector<int>> items;
      for (int i = 0; i < 32; ++i) items.push_back({i});
      const auto requests = sent_together(serving, items);
      for (int i = 0; i < 32; ++i) {
        const NativeRequest& request = requests[static_cast<std::size_t>(i)];
        if (i * guilty % 32 < guilty) {
          ASSERT_TRUE(request.ends_as(Outcome::kFailed));
          EXPECT_EQ(request.call().failure.message, std::to_string(i)) << "its own";
        } else {
          EXPECT_TRUE(request.answered()) << i << " with " << guilty << " guilty";
        }
      }
    }
  }
}

TEST(NativeWorkers, WithoutIsolationABatchFailsTogether) {
  const auto model = std::make_shared<IntModel>(refuse_13);
  NativeServing serving(model, {.count = 1, .isolate_errors = false});
  const auto requests = sent_together(serving, {{1}, {13}});
  for (const NativeRequest& request : requests) EXPECT_TRUE(request.ends_as(Outcome::kFailed));
  EXPECT_EQ(model->runs, 1);
}

TEST(NativeWorkers, ABatchTooLargeForTheMemoryIsAnsweredInParts) {
  const auto model = std::make_shared<IntModel>([](const std::vector<int>& items) {
    if (items.size() > 2) throw std::bad_alloc();
  });
  NativeServing serving(model);
  const auto requests = sent_together(serving, {{1, 2, 3, 4, 5, 6}, {7, 8}});
  for (const NativeRequest& request : requests) EXPECT_TRUE(request.answered());
  EXPECT_TRUE(serving.sent({1, 2, 3, 4, 5, 6}).answered());
  EXPECT_EQ(serving.engine.stats().counters.out_of_memory, 1U) << "the next batches are smaller";
}

TEST(NativeWorkers, AnItemTooLargeForTheMemoryFailsAlone) {
  const auto model = std::make_shared<IntModel>([](const std::vector<int>& items) {
    if (contains(items, 13)) throw RunError(Fault::kMemory, "13 is too large");
  });
  NativeServing serving(model);
  const auto requests = sent_together(serving, {{1}, {13}, {2}});
  ASSERT_TRUE(requests[1].ends_as(Outcome::kFailed));
  EXPECT_EQ(requests[1].call().failure.fault, Fault::kMemory);
  EXPECT_EQ(requests[1].call().failure.message, "13 is too large");
  EXPECT_TRUE(requests[0].answered());
  EXPECT_TRUE(requests[2].answered());
}

TEST(NativeWorkers, AWrongNumberOfOutputsFailsTheBatchWithoutIsolation) {
  const auto model = std::make_shared<IntModel>([](const std::vector<int>& items) {
    RunError error(Fault::kOutputs, "too few");
    error.expected = static_cast<std::int64_t>(items.size());
    throw error;
  });
  NativeServing serving(model);
  const auto requests = sent_together(serving, {{1}, {2}});
  for (const NativeRequest& request : requests) {
    ASSERT_TRUE(request.ends_as(Outcome::kFailed));
    EXPECT_EQ(request.call().failure.fault, Fault::kOutputs);
    EXPECT_EQ(request.call().failure.expected, 2);
  }
  EXPECT_EQ(model->runs, 1) << "it is not run again";
}

// The first two attempts to make a runner fail: when the thread starts, and for its first batch.
class LateModel final : public native::Model {
 public:
  std::unique_ptr<native::Runner> make_runner() override {
    if (++asked <= 2) throw std::runtime_error("not now");
    return model_.make_runner();
  }

  std::atomic<int> asked{0};

 private:
  IntModel model_;
};

TEST(NativeWorkers, ARunnerThatCannotBeMadeFailsItsBatchAndIsTriedAgain) {
  NativeServing serving(std::make_shared<LateModel>());
  serving.start();
  const NativeRequest first = serving.sent({1});
  ASSERT_TRUE(first.ends_as(Outcome::kFailed));
  EXPECT_EQ(first.call().failure.message, "not now");
  EXPECT_TRUE(serving.sent({2}).answered());
}

TEST(NativeWorkers, ExpiredRequestsEndBeforeTheBatchRuns) {
  HeldModel held;
  const auto model = held.model();
  NativeServing serving(model);
  const NativeRequest late = serving.sent({1}, {.deadline = Clock::now()});
  const NativeRequest other = serving.sent({2});
  serving.start();
  EXPECT_TRUE(late.ends_as(Outcome::kExpired)) << "although the model is at work";
  held.running.wait();
  EXPECT_FALSE(other.done());
  held.open.count_down();
  EXPECT_TRUE(other.answered());
}

TEST(NativeWorkers, ItemsAreDestroyedAfterTheRunAndOutputsStay) {
  NativeServing serving(std::make_shared<IntModel>());
  serving.start();
  const NativeRequest request = serving.sent({1});
  ASSERT_TRUE(request.answered());
  EXPECT_TRUE(eventually([&] { return !request.has_items(); }));
  EXPECT_EQ(request.call().outputs.size(), 1U);
}

TEST(NativeWorkers, OutputsOfCancelledRequestsAreDestroyed) {
  HeldModel held;
  const auto model = held.model();
  NativeServing serving(model);
  serving.start();
  const NativeRequest request = serving.sent({1});
  held.running.wait();
  EndedRequests ended;
  ASSERT_TRUE(serving.engine.end_early(request.call().request, Outcome::kCancelled, true, ended));
  calls::publish(ended);
  EXPECT_TRUE(request.has_items()) << "the model is at them";
  held.open.count_down();
  serving.finish(true);
  EXPECT_FALSE(request.has_items());
  EXPECT_TRUE(request.call().outputs.empty());
}

TEST(NativeWorkers, DrainTheQueueWhenTheEngineIsClosed) {
  NativeServing serving(std::make_shared<IntModel>());
  std::vector<NativeRequest> requests;
  for (int i = 0; i < 20; ++i) requests.push_back(serving.sent({i}));
  serving.start();
  serving.finish(true);
  for (const NativeRequest& request : requests) EXPECT_TRUE(request.done() && request.answered());
}

TEST(NativeWorkers, KeepTheModelUntilTheyHaveEnded) {
  HeldModel held;
  auto model = held.model();
  const std::weak_ptr<IntModel> watched_model = model;
  const auto serving = std::make_unique<Engine>(EngineOptions{.batch_size = 8});
  auto kept = std::make_shared<int>(0);
  const std::weak_ptr<int> watched = kept;
  {
    native::Workers workers(*serving, model, {});
    workers.start(kept);
  }
  model.reset();
  kept.reset();
  const NativeRequest request({1});
  ASSERT_TRUE(request.submit(*serving));
  held.running.wait();
  EndedRequests ended;
  serving->close(true, ended);
  calls::publish(ended);
  EXPECT_FALSE(watched.expired());
  EXPECT_FALSE(watched_model.expired());
  held.open.count_down();
  EXPECT_TRUE(request.answered());
  EXPECT_TRUE(eventually([&] { return watched.expired() && watched_model.expired(); }));
}

TEST(NativeWorkers, AreReadyWhenAllHaveRunners) {
  const auto model = std::make_shared<IntModel>();
  NativeServing serving(model, {.count = 3});
  Sleeping sleeping;
  EXPECT_EQ(serving.workers.wait_ready(sleeping.waiter(), Clock::now()), Completion::Wait::kTimeout);
  serving.start();
  EXPECT_EQ(serving.workers.wait_ready(sleeping.waiter(), Clock::now() + kPatience), Completion::Wait::kDone);
  EXPECT_EQ(model->runners, 3);
}

TEST(NativeWorkers, JoinReturnsIfTheyWereNeverStarted) {
  Engine engine({.batch_size = 8});
  const native::Workers workers(engine, std::make_shared<IntModel>(), {});
  Sleeping sleeping;
  EXPECT_EQ(workers.join(sleeping.waiter(), TimePoint::max()), Completion::Wait::kDone);
}

}  // namespace
}  // namespace service_streamer::support
