#include "service_streamer/native/worker.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <new>
#include <utility>

namespace service_streamer::native {
namespace {

constexpr std::size_t kLongestMessage = 2000;

// Libraries put a backtrace of their own code below the line that says what happened.
std::string one_line(const std::string& text) {
  return text.substr(0, std::min(text.find('\n'), kLongestMessage));
}

Failure failure_of(const std::exception& error) {
  if (const auto* own = dynamic_cast<const RunError*>(&error)) {
    return {.fault = own->fault, .message = own->what(), .expected = own->expected, .received = own->received};
  }
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return {.fault = Fault::kMemory, .message = "there is no memory for the batch"};
  }
  return {.fault = Fault::kModel, .message = one_line(error.what())};
}

// 2·log2(n) + 2: enough to find one guilty request of n.
int runs_to_isolate(std::size_t items) {
  return 2 * static_cast<int>(std::log2(std::max<std::size_t>(items, 1))) + 2;
}

}  // namespace

// --- Held ---

void Held::swap(Held& other) noexcept {
  std::swap(batch, other.batch);
  std::swap(failure, other.failure);
  std::swap(engine_, other.engine_);
}

void Held::give_back(Outcome outcome) {
  if (batch.parts.empty()) return;
  EndedRequests ended;
  ReleasedRequests released;
  engine_->complete(batch, outcome, ended, released);
  calls::publish(ended);
  calls::let_go(released);
}

void Held::fail() {
  for (const BatchPart& part : batch.parts) Call::of(*part.request).fail(failure);
  give_back(Outcome::kFailed);
}

bool Held::drop_ended() {
  EndedRequests ended;
  ReleasedRequests released;
  engine_->drop_ended(batch, ended, released);
  const bool any = std::any_of(batch.parts.begin(), batch.parts.end(),
                               [](const BatchPart& part) { return part.request != nullptr; });
  calls::publish(ended);
  calls::let_go(released);
  std::erase_if(batch.parts, [](const BatchPart& part) { return part.request == nullptr; });
  if (any) return true;
  engine_->complete(batch, Outcome::kAnswered, ended, released);  // of nothing
  return false;
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
  Waiter& waiter = WaiterPool::acquire();
  for (;;) {
    CloseReason reason{};
    const Engine::Ready ready = engine_.wait_for_batch(waiter, reason);
    if (ready == Engine::Ready::kClosed) break;
    if (ready != Engine::Ready::kBatch) continue;
    Held held(engine_);
    EndedRequests expired;
    const bool any = engine_.cut(held.batch, reason, expired);
    calls::publish(expired);
    if (!any) continue;
    try {
      serve(held);
    } catch (const std::bad_alloc&) {  // not the model's, which would fail its batch: what is left of it is lost
      outputs_.clear();
    }
  }
  WaiterPool::release(waiter);
}

void Worker::serve(Held& held) {
  if (attempt(held)) return;
  // Of a number of outputs that does not fit no item is guilty.
  const bool isolate = isolate_errors_ && held.failure.fault != Fault::kOutputs;
  isolate ? bisect(std::move(held)) : held.fail();
}

// The largest group that failed is cut next. One for which there was no memory is cut between items, others only between
// requests: the parts of one request succeed or fail together. What is not resolved in so many runs fails together.
void Worker::bisect(Held failed) {
  int runs_left = runs_to_isolate(failed.batch.items);
  std::vector<Held> groups;
  groups.push_back(std::move(failed));
  while (!groups.empty()) {
    const auto largest = std::max_element(groups.begin(), groups.end(),
                                          [](const Held& a, const Held& b) { return a.batch.items < b.batch.items; });
    Held first = std::move(*largest);
    groups.erase(largest);
    Held second(engine_);
    if (runs_left < 2 || !first.split(first.failure.fault == Fault::kMemory, second)) {
      first.fail();
      continue;
    }
    runs_left -= 2;
    for (Held* half : {&first, &second}) {
      if (half->drop_ended() && !attempt(*half)) groups.push_back(std::move(*half));
    }
  }
}

// Answers the batch; false: it is unanswered, and its failure tells why.
bool Worker::attempt(Held& held) {
  try {
    run_model(held.batch);
  } catch (const std::exception& error) {
    held.failure = failure_of(error);
    outputs_.clear();
    return false;
  }
  for (std::size_t i = 0; i < held.batch.parts.size(); ++i) {
    BatchPart& part = held.batch.parts[i];
    Call& call = Call::of(*part.request);
    part.failed = !call.add({.begin = part.begin, .count = part.count, .outputs = std::move(outputs_[i])});
  }
  outputs_.clear();
  held.give_back(Outcome::kAnswered);
  return true;
}

void Worker::run_model(const Batch& batch) {
  if (runner_ == nullptr) runner_ = model_.make_runner();
  parts_.clear();
  for (const BatchPart& part : batch.parts) {
    parts_.push_back({.items = &Call::of(*part.request).items(), .begin = part.begin, .count = part.count});
  }
  outputs_.resize(parts_.size());
  runner_->run(parts_, outputs_);
}

}  // namespace service_streamer::native
