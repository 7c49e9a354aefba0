#include "service_streamer/native/worker.h"

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "service_streamer/base/file_descriptor.h"
#include "service_streamer/base/trace.h"
#include "service_streamer/batching/isolation.h"

namespace service_streamer::native {
namespace {

constexpr std::size_t kLongestMessage = 2000;

// Python forks with the GIL, and this thread runs without it. The ForkLock prevents a fork while the pool is locked:
// otherwise the child would inherit a locked pool.
Waiter& acquire_waiter() {
  const ForkLock no_fork;
  return WaiterPool::acquire();
}

void release_waiter(Waiter& waiter) {
  const ForkLock no_fork;
  WaiterPool::release(waiter);
}

// Keeps the first line, because libraries append a backtrace of their own code.
std::string one_line(const std::string& text) {
  return text.substr(0, std::min(text.find('\n'), kLongestMessage));
}

RunFailure failure_of(const std::exception& error) {
  if (const auto* own = dynamic_cast<const RunError*>(&error)) {
    return {.fault = own->fault, .message = own->what(), .expected = own->expected, .received = own->received};
  }
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return {.fault = Fault::kMemory, .message = "not enough memory for the batch"};
  }
  return {.fault = Fault::kModel, .message = one_line(error.what())};
}

// Leaves a record of the batch with its traced requests, for a span. Without memory there is none.
void note_batch(const Batch& batch, const std::string& error) noexcept {
  if (std::none_of(batch.ranges.begin(), batch.ranges.end(),
                   [](const RequestRange& range) { return range.request->context != nullptr; })) {
    return;
  }
  try {
    const auto record = std::make_shared<BatchRecord>(batch, error);
    for (const RequestRange& range : batch.ranges) {
      if (range.request->context != nullptr) TensorCall::of(*range.request).note(record);
    }
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch)
  }
}

}  // namespace

// --- HeldBatch ---

void HeldBatch::swap(HeldBatch& other) noexcept {
  std::swap(batch, other.batch);
  std::swap(failure, other.failure);
  std::swap(engine_, other.engine_);
}

void HeldBatch::complete(Outcome outcome) {
  if (batch.ranges.empty()) return;
  note_batch(batch, outcome == Outcome::kFailed ? failure.message : std::string());
  EndedRequests ended;
  ReleasedRequests released;
  engine_->complete(batch, outcome, ended, released);
  calls::publish(ended);
  calls::let_go(released);
}

void HeldBatch::fail() {
  for (const RequestRange& range : batch.ranges) TensorCall::of(*range.request).fail(failure);
  complete(Outcome::kFailed);
}

bool HeldBatch::drop_ended() {
  EndedRequests ended;
  ReleasedRequests released;
  engine_->drop_ended(batch, ended, released);
  const bool any = std::any_of(batch.ranges.begin(), batch.ranges.end(),
                               [](const RequestRange& range) { return range.request != nullptr; });
  calls::publish(ended);
  calls::let_go(released);
  std::erase_if(batch.ranges, [](const RequestRange& range) { return range.request == nullptr; });
  if (any) return true;
  engine_->complete(batch, Outcome::kAnswered, ended, released);  // empty, but its worker must be released
  return false;
}

HeldBatch HeldBatch::split(const BatchCut& cut) {
  if (cut.items == batch.items) return std::move(*this);
  HeldBatch first(*engine_);
  engine_->split(batch, cut, first.batch);
  return first;
}

void HeldBatch::join(HeldBatch&& first) {
  empty() ? swap(first) : engine_->join(batch, first.batch);
}

void HeldBatch::postpone() {
  EndedRequests ended;
  ReleasedRequests released;
  engine_->postpone(batch, ended, released);
  std::erase_if(batch.ranges, [](const RequestRange& range) { return range.request == nullptr; });
  calls::publish(ended);
  calls::let_go(released);
  if (empty()) engine_->complete(batch, Outcome::kAnswered, ended, released);  // empty, but its worker must be released
}

// --- Worker ---

void Worker::prepare() {
  try {
    runner_ = model_.make_runner();
  } catch (const std::exception&) {
    runner_ = nullptr;
  }
}

void Worker::run() {
  Waiter& waiter = acquire_waiter();
  for (;;) {
    CloseReason reason{};
    const Engine::Ready ready = next(waiter, reason);
    if (ready == Engine::Ready::kClosed && in_flight_.empty()) break;
    try {
      if (ready == Engine::Ready::kBatch) {
        take(reason);
      } else if (!in_flight_.empty()) {
        finish_oldest();
      }
    } catch (
        const std::bad_alloc&) {  // of the bookkeeping, not of the model: the destructors ended the requests as kLost
      outputs_.clear();
    }
  }
  release_waiter(waiter);
}

// Does not block while a batch is in flight: the thread must then finish that batch.
Engine::Ready Worker::next(Waiter& waiter, CloseReason& reason) {
  if (in_flight_.empty()) {
    const TraceRange trace("queue");
    return engine_.wait_for_batch(waiter, reason);
  }
  return in_flight_.size() < runner_->depth() ? engine_.poll_ahead(reason) : Engine::Ready::kNotYet;
}

void Worker::take(CloseReason reason) {
  HeldBatch held(engine_);
  EndedRequests expired;
  const bool any = engine_.cut(held.batch, reason, expired);
  calls::publish(expired);
  if (!any) return;
  if (runner_ != nullptr && runner_->depth() > 1) {
    launch(std::move(held));
  } else {
    serve(held);
  }
}

void Worker::launch(HeldBatch held) {
  InFlight& latest = in_flight_.emplace_back(engine_);
  latest.held = std::move(held);
  try {
    prepare_run(latest.held.batch);
    latest.phases = runner_->phases;
    latest.run = runner_->launch(ranges_);
  } catch (const std::exception& error) {
    HeldBatch failed = std::move(latest.held);
    in_flight_.pop_back();
    failed.failure = failure_of(error);
    recover(std::move(failed), !in_flight_.empty());
  }
}

void Worker::finish_oldest() {
  InFlight oldest = std::move(in_flight_.front());
  in_flight_.pop_front();
  const bool others_in_flight = !in_flight_.empty();
  bool answered = true;
  try {
    outputs_.resize(oldest.held.batch.ranges.size());
    const TraceRange trace("finish");
    oldest.run->finish(outputs_);
    record(oldest.held.batch, oldest.phases);
  } catch (const std::exception& error) {
    oldest.held.failure = failure_of(error);
    outputs_.clear();
    answered = false;
  }
  oldest.run.reset();
  // The service time of the next batch starts now. If it started at its launch, the time of this batch would be counted
  // twice, and estimates from service times would be too high.
  if (others_in_flight) in_flight_.front().held.batch.dispatched = Clock::now();
  answered ? answer(oldest.held) : recover(std::move(oldest.held), others_in_flight);
}

// `others_in_flight`: the batch ran beside another one. If it lacked memory, it is tried once more without the other.
void Worker::recover(HeldBatch failed, bool others_in_flight) {
  while (!in_flight_.empty()) finish_oldest();
  if (others_in_flight && failed.failure.fault == Fault::kMemory) {
    failed.batch.dispatched = Clock::now();
    const BatchSize whole = failed.batch.whole;
    if (!failed.drop_ended()) return;
    if (attempt(failed))
      return engine_.learn(whole, {.failed = whole.items, .passed = whole.items / 2});  // two of half
  }
  fail(std::move(failed));
}

void Worker::serve(HeldBatch& held) {
  if (!attempt(held)) fail(std::move(held));
}

void Worker::fail(HeldBatch failed) {
  // A wrong number of outputs cannot be attributed to a single request.
  const bool in_parts = options_.isolate_errors && failed.failure.fault != Fault::kOutputs;
  in_parts ? isolate(std::move(failed)) : failed.fail();
}

void Worker::isolate(HeldBatch left) {
  const Isolation::FirstRun first{.requests = left.batch.ranges.size(),
                                  .items = left.batch.items,
                                  .begin = left.batch.dispatched,
                                  .end = Clock::now()};
  const BatchSize whole = left.batch.whole;
  Isolation isolation(first, options_.isolation_budget);
  if (isolation.failed(first.requests, first.items, left.out_of_memory())) left.fail();
  while (!left.empty()) {
    if (isolation.over(Clock::now())) left.postpone();
    if (left.empty()) break;
    HeldBatch group = left.split(isolation.next(left.batch.ranges));
    if (!group.drop_ended() || attempt(group)) {
      isolation.passed();
    } else if (group.failure.fault == Fault::kOutputs) {
      group.fail();
      isolation.passed();
    } else if (isolation.failed(group.batch.ranges.size(), group.batch.items, group.out_of_memory())) {
      group.fail();
    } else {
      left.join(std::move(group));
    }
  }
  engine_.learn(whole, isolation.lesson());
}

// Runs and answers the batch. False if the run failed; then `held.failure` is set and the batch is not answered.
bool Worker::attempt(HeldBatch& held) {
  try {
    run_model(held.batch);
  } catch (const std::exception& error) {
    held.failure = failure_of(error);
    outputs_.clear();
    return false;
  }
  answer(held);
  return true;
}

void Worker::answer(HeldBatch& held) {
  const TraceRange trace("split");
  for (std::size_t i = 0; i < held.batch.ranges.size(); ++i) {
    RequestRange& range = held.batch.ranges[i];
    TensorCall& call = TensorCall::of(*range.request);
    range.failed = !call.add({.begin = range.begin, .count = range.count, .outputs = std::move(outputs_[i])});
  }
  outputs_.clear();
  held.complete(Outcome::kAnswered);
}

void Worker::prepare_run(const Batch& batch) {
  runner_->phases = engine_.recorder().recording() ? std::make_shared<PhaseLog>() : nullptr;
  ranges_.clear();
  for (const RequestRange& range : batch.ranges) {
    ranges_.push_back({.items = &TensorCall::of(*range.request).items(), .begin = range.begin, .count = range.count});
  }
}

void Worker::run_model(const Batch& batch) {
  if (runner_ == nullptr) runner_ = model_.make_runner();
  prepare_run(batch);
  outputs_.resize(ranges_.size());
  runner_->run(ranges_, outputs_);
  record(batch, runner_->phases);
}

void Worker::record(const Batch& batch, const std::shared_ptr<PhaseLog>& phases) {
  if (phases != nullptr) engine_.recorder().record_phases(batch, phases->phases());
}

}  // namespace service_streamer::native
