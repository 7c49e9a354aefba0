#pragma once

// A native model without a library. Items are ints; the model adds 1, unless a test gives another function.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "service_streamer/native/model.h"
#include "service_streamer/native/tensor_call.h"
#include "service_streamer/native/workers.h"
#include "support/threads.h"

namespace service_streamer::support {

class IntItems final : public native::Items {
 public:
  IntItems(std::vector<int> items, std::shared_ptr<std::atomic<int>> alive)
      : numbers(std::move(items)), alive_(std::move(alive)) {
    ++*alive_;
  }
  ~IntItems() override { --*alive_; }

  void retire() noexcept override { delete this; }

  const std::vector<int> numbers;

 private:
  const std::shared_ptr<std::atomic<int>> alive_;  // items may outlive their caller
};

class IntOutputs final : public native::Outputs {
 public:
  explicit IntOutputs(std::vector<int> outputs) : numbers(std::move(outputs)) {}

  const std::vector<int> numbers;
};

inline std::vector<int> numbers_of(const native::ItemRange& range) {
  const auto first = dynamic_cast<const IntItems&>(*range.items).numbers.begin() + range.begin;
  return {first, first + range.count};
}

// A function that gets the items of a batch before the model runs. May throw.
using Look = std::function<void(const std::vector<int>& items)>;

class IntModel final : public native::Model {
 public:
  explicit IntModel(Look look = nullptr) : look_(std::move(look)) {}

  std::unique_ptr<native::Runner> make_runner() override {
    ++runners;
    return std::make_unique<Runner>(*this);
  }

  std::atomic<int> runners{0};
  std::atomic<int> runs{0};

 private:
  class Runner final : public native::Runner {
   public:
    explicit Runner(IntModel& model) : model_(model) {}

    void run(std::span<const native::ItemRange> ranges, std::span<std::unique_ptr<native::Outputs>> outputs) override {
      ++model_.runs;
      std::vector<int> all;
      for (const native::ItemRange& range : ranges) {
        for (const int number : numbers_of(range)) all.push_back(number);
      }
      const native::PhaseRange range(phases.get(), LoggedEvent::Kind::kComputed);
      if (model_.look_) model_.look_(all);
      for (std::size_t i = 0; i < ranges.size(); ++i) {
        std::vector<int> numbers = numbers_of(ranges[i]);
        for (int& number : numbers) ++number;
        outputs[i] = std::make_unique<IntOutputs>(std::move(numbers));
      }
    }

   private:
    IntModel& model_;
  };

  const Look look_;
};

// A caller's reference to a request.
class NativeRequest {
 public:
  explicit NativeRequest(std::vector<int> items, const Terms& terms = {}) : items_(std::move(items)) {
    call_ = new native::TensorCall(native::ItemsRef(new IntItems(items_, alive_)),
                                   static_cast<std::uint32_t>(items_.size()));
    call_->request.deadline = terms.deadline;
  }
  ~NativeRequest() {
    if (call_ != nullptr) call_->unref();
  }
  NativeRequest(NativeRequest&& other) noexcept
      : items_(other.items_), alive_(other.alive_), call_(std::exchange(other.call_, nullptr)) {}
  NativeRequest& operator=(NativeRequest&&) = delete;

  native::TensorCall& call() const { return *call_; }
  Outcome outcome() const { return call_->request.outcome; }

  // Returns whether its items still exist.
  bool has_items() const { return *alive_ > 0; }

  bool submit(Engine& engine) const {
    call_->ref();
    const Engine::Admission admission = engine.submit(call_->request);
    const bool taken = admission == Engine::Admission::kQueued || admission == Engine::Admission::kWaiting;
    if (!taken) call_->unref();
    return taken;
  }

  bool done() const { return call_->request.completion.done(); }
  bool wait() const {
    Sleeping sleeping;
    return call_->request.completion.wait(sleeping.waiter(), Clock::now() + kPatience) == Completion::Wait::kDone;
  }
  bool ends_as(Outcome expected) const { return wait() && outcome() == expected; }

  bool answered() const {
    if (!ends_as(Outcome::kAnswered)) return false;
    std::vector<int> outputs;
    for (const native::OutputRange& range : call_->outputs) {
      const std::vector<int>& part = dynamic_cast<const IntOutputs&>(*range.outputs).numbers;
      if (range.begin != outputs.size() || part.size() != range.count) return false;
      outputs.insert(outputs.end(), part.begin(), part.end());
    }
    if (outputs.size() != items_.size()) return false;
    for (std::size_t i = 0; i < items_.size(); ++i) {
      if (outputs[i] != items_[i] + 1) return false;
    }
    return true;
  }

 private:
  const std::vector<int> items_;
  std::shared_ptr<std::atomic<int>> alive_ = std::make_shared<std::atomic<int>>(0);
  native::TensorCall* call_ = nullptr;
};

// An engine with the threads of a model, closed and joined at the end.
class NativeServing {
 public:
  explicit NativeServing(const std::shared_ptr<native::Model>& model, const native::WorkersOptions& options = {},
                         const EngineOptions& batching = {.batch_size = 8, .policy = PolicyKind::kGreedy})
      : engine(batching), workers(engine, model, options) {}
  ~NativeServing() { finish(false); }
  NativeServing(const NativeServing&) = delete;
  NativeServing& operator=(const NativeServing&) = delete;

  void start(const std::shared_ptr<void>& keep = nullptr) { workers.start(keep); }

  NativeRequest sent(std::vector<int> items, const Terms& terms = {}) {
    NativeRequest request(std::move(items), terms);
    EXPECT_TRUE(request.submit(engine));
    return request;
  }

  void close(bool drain) {
    EndedRequests ended;
    engine.close(drain, ended);
    calls::publish(ended);
  }

  void finish(bool drain) {
    close(drain);
    Sleeping sleeping;
    EXPECT_EQ(workers.join(sleeping.waiter(), Clock::now() + kPatience), Completion::Wait::kDone);
  }

  Engine engine;
  native::Workers workers;
};

inline bool contains(const std::vector<int>& items, int item) {
  return std::find(items.begin(), items.end(), item) != items.end();
}

// A `Look` that fails for 13.
inline void refuse_13(const std::vector<int>& items) {
  if (contains(items, 13)) throw std::runtime_error("13 is bad luck\nand a backtrace");
}

// Submits the requests before a worker starts, so that they are one batch.
inline std::vector<NativeRequest> sent_together(NativeServing& serving, const std::vector<std::vector<int>>& requests) {
  std::vector<NativeRequest> sent;
  sent.reserve(requests.size());
  for (const std::vector<int>& items : requests) sent.push_back(serving.sent(items));
  serving.start();
  return sent;
}

// Runs callers in threads. Each makes calls one after the other. Returns the number of wrong results.
inline int wrong_answers_to_many(NativeServing& serving) {
  std::atomic<int> wrong{0};
  {
    std::vector<std::unique_ptr<Thread>> callers;
    for (int caller = 0; caller < 4; ++caller) {
      callers.push_back(std::make_unique<Thread>([&, caller] {
        for (int i = 0; i < 500 / kStressShare; ++i) {
          if (!serving.sent({caller, i, caller * i}).answered()) ++wrong;
        }
      }));
    }
  }
  return wrong;
}

}  // namespace service_streamer::support
