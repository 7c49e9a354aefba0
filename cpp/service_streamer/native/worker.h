#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "service_streamer/batching/engine.h"
#include "service_streamer/native/model.h"
#include "service_streamer/native/tensor_call.h"

namespace service_streamer::native {

struct WorkersOptions {
  int count = 1;  // threads

  // A batch that raised is run again in parts, so that only the guilty requests fail.
  bool isolate_errors = true;

  // Most time for that once more than a quarter are guilty, in multiples of what the batch took.
  double isolation_budget = 8;
};

// A batch that a worker has taken. Dropped before anything became of it, its requests are lost.
class Held {
 public:
  explicit Held(Engine& engine) : engine_(&engine) {}
  ~Held() { give_back(Outcome::kLost); }
  Held(Held&& other) noexcept { swap(other); }
  Held& operator=(Held&& other) noexcept {
    swap(other);
    return *this;
  }

  Batch batch;
  RunFailure failure;  // of its last run

  // Everybody in it has his outputs, or the failure.
  void give_back(Outcome outcome);
  void fail();

  // Before it runs again. False: nothing is left of it, and the engine has it back.
  bool drop_ended();

  bool out_of_memory() const { return failure.fault == Fault::kMemory; }

  // See Engine::split() and join(). Unlike there, all of it may be taken out, and then this is empty.
  Held take(const BatchCut& cut);
  void join(Held&& first);
  bool empty() const { return batch.parts.empty(); }

  // See Engine::postpone().
  void postpone();

 private:
  void swap(Held& other) noexcept;

  Engine* engine_ = nullptr;
};

// One thread's work for a native model: batches from the engine, each answered or failed, as python/service_streamer/_worker.py
// does it for predict_function.
//
// With a runner that can have several batches under way, a batch is launched while the one before it still runs, if it is there
// and cannot grow any more. The answers of the one before wait for the host's part of that at most: to collate a batch and to start
// the model. A batch that fails is run again, in parts, after those launched later have been answered, so that it has the runner to
// itself.
class Worker {
 public:
  Worker(Engine& engine, Model& model, const WorkersOptions& options)
      : engine_(engine), model_(model), options_(options) {}

  // Makes the runner. One that cannot be made is asked for again by each batch, which fails with the reason.
  void prepare();

  // Blocks until the engine is closed and empty.
  void run();

 private:
  // A batch under way. The run goes first: it may still be at the items.
  struct InFlight {
    explicit InFlight(Engine& engine) : held(engine) {}

    Held held;
    std::unique_ptr<Launched> run;
  };

  Engine::Ready next(Waiter& waiter, CloseReason& reason);
  void take(CloseReason reason);
  void launch(Held held);
  void finish_oldest();
  void recover(Held failed, bool crowded);
  void serve(Held& held);
  void fail(Held failed);
  void isolate(Held failed);
  bool attempt(Held& held);
  void answer(Held& held);
  void read_parts(const Batch& batch);
  void run_model(const Batch& batch);

  Engine& engine_;
  Model& model_;
  const WorkersOptions options_;

  std::unique_ptr<Runner> runner_;
  std::vector<Part> parts_;  // of the run under way
  std::vector<std::unique_ptr<Outputs>> outputs_;
  std::deque<InFlight> in_flight_;  // the oldest first
};

}  // namespace service_streamer::native
