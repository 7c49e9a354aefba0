// A target of the engine: which requests are refused at once, and which are ended in the queue.

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "support/threads.h"

namespace service_streamer::support {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using Admission = Engine::Admission;

constexpr Duration kTarget = milliseconds(200);

EngineOptions with(Duration slo, std::size_t max_queue = 0) {
  return {.batch_size = 4, .policy = PolicyKind::kGreedy, .max_queue = max_queue, .slo = slo};
}

// An engine with one batch at a worker that will miss the target, and a request in the queue.
struct Overdue {
  Overdue() {
    running = submitted(engine, 1);
    batch = take(engine);
    queued = submitted(engine, 1);
    pass_time_until(batch.dispatched + kTarget + milliseconds(1));
  }
  ~Overdue() {
    if (batch.items > 0) answer(engine, batch);
    abort(engine);
  }
  Overdue(const Overdue&) = delete;
  Overdue& operator=(const Overdue&) = delete;

  Engine engine{with(kTarget)};
  CallPtr running;
  CallPtr queued;
  Batch batch;
};

void expect_refused(const Call& call) {
  EXPECT_TRUE(call.done());
  EXPECT_EQ(call.outcome, Outcome::kRefused);
  EXPECT_GT(call.retry_after, 0);
}

TEST(EngineSlo, WithoutATargetNothingIsRefused) {
  Engine engine({.batch_size = 4});
  EXPECT_EQ(engine.stats().batch_limit, 4U);
  EXPECT_EQ(engine.stats().least_service, Duration::zero());
  EXPECT_THROW(Engine(with(Duration(-1))), std::invalid_argument);
}

TEST(EngineSlo, ALooseTargetRefusesNothing) {
  Engine engine(with(hours(1)));
  std::vector<CallPtr> calls;
  for (int i = 0; i < 100; ++i) calls.push_back(submitted(engine, 3));
  serve_all(engine);
  for (const CallPtr& call : calls) EXPECT_TRUE(call->answered());
  EXPECT_GT(engine.stats().least_service, Duration::zero());
  EXPECT_EQ(engine.stats().counters.rejected, 0U);
}

TEST(EngineSlo, ARequestThatWouldBeLateIsRefusedAtOnce) {
  Overdue overdue;
  const CallPtr late = make_call(1);
  EXPECT_EQ(submit(overdue.engine, late), Admission::kFull);
  EXPECT_GT(late->retry_after, 0);
  EXPECT_EQ(overdue.engine.submit_accepted(*late), Admission::kFull);
  EXPECT_EQ(overdue.engine.stats().counters.rejected, 2U);
  EXPECT_EQ(overdue.engine.stats().counters.submitted, 2U);
}

TEST(EngineSlo, AQueuedRequestIsEndedWhenAnotherIsRefused) {
  Overdue overdue;
  EndedRequests ended;
  overdue.engine.end_hopeless(ended);
  publish(ended);
  expect_refused(*overdue.queued);
  EXPECT_FALSE(overdue.running->done());
  EXPECT_EQ(overdue.engine.stats().counters.rejected, 1U);
}

TEST(EngineSlo, AQueuedRequestIsEndedWhenTheBatchBeforeItIsBackTooLate) {
  Overdue overdue;
  answer(overdue.engine, overdue.batch);
  EXPECT_TRUE(overdue.running->answered());
  expect_refused(*overdue.queued);
  EXPECT_EQ(overdue.engine.stats().queued_items, 0U);
}

TEST(EngineSlo, OfRequestsThatComeTogetherOnlyTheLateOnesEnd) {
  Engine engine(with(kTarget));
  const CallPtr sent_long_ago = make_call(1);
  sent_long_ago->sent = Clock::now() - hours(1);
  const CallPtr sent_now = make_call(1);
  std::vector<Request*> requests;
  for (const CallPtr& call : {sent_long_ago, sent_now}) {
    call->accepted = true;
    call->kept = call;
    requests.push_back(call.get());
  }
  EndedRequests ended;
  EXPECT_TRUE(engine.submit_accepted(requests, ended));
  publish(ended);
  expect_refused(*sent_long_ago);
  EXPECT_FALSE(sent_now->done());
  serve_all(engine);
  EXPECT_TRUE(sent_now->answered());
}

TEST(EngineSlo, AFullQueueRefusesAlsoWhereItWouldBlock) {
  EngineOptions options = with(hours(1), 3);
  options.max_queue_per_tenant = 2;
  Engine engine(options);
  const CallPtr queued = submitted(engine, 2);
  const CallPtr refused = make_call(1);
  EXPECT_EQ(submit(engine, refused), Admission::kTenantFull);
  EXPECT_EQ(refused->retry_after, 0) << "the target is not the reason";
  const CallPtr large = make_call(2);
  large->traits = std::make_shared<ItemTraits>(ItemTraits{.keys = {}, .weights = {}, .tenant = "other"});
  EXPECT_EQ(submit(engine, large), Admission::kFull);
  EXPECT_EQ(engine.submit_accepted(*large), Admission::kFull) << "it does not wait, either";
  EXPECT_GT(large->retry_after, 0) << "for the other engine";
  serve_all(engine);
  EXPECT_TRUE(queued->answered());
}

TEST(EngineSlo, ARequestOfAHigherPriorityNeedNotWaitForTheOthers) {
  Engine engine(with(5 * kTarget));
  for (int i = 0; i < 2; ++i) {
    const CallPtr call = submitted(engine, 4);
    Batch batch = take(engine);
    pass_time_until(batch.dispatched + milliseconds(300));
    answer(engine, batch);
  }
  std::vector<CallPtr> calls;
  Admission admission = Admission::kQueued;
  while (admission == Admission::kQueued && calls.size() < 100) {
    calls.push_back(make_call(1));
    admission = submit(engine, calls.back());
  }
  EXPECT_EQ(admission, Admission::kFull);
  EXPECT_LE(calls.size(), 16U) << "three batches of 300 ms fit";
  submitted(engine, 1, {.priority = 1});
  abort(engine);
}

}  // namespace
}  // namespace service_streamer::support
