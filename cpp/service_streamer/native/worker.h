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

  // True: a failed batch is run again in parts, so that only the requests that cause the failure fail.
  bool isolate_errors = true;

  // The time limit of that search if more than a quarter of the requests are guilty, in multiples of the time of the
  // failed run.
  double isolation_budget = 8;
};

// Owns a batch that a worker has taken from the engine. If it is destroyed before complete() or fail(), its requests
// end as kLost. Used by one thread.
class HeldBatch {
 public:
  explicit HeldBatch(Engine& engine) : engine_(&engine) {}
  ~HeldBatch() { complete(Outcome::kLost); }
  HeldBatch(HeldBatch&& other) noexcept { swap(other); }
  HeldBatch& operator=(HeldBatch&& other) noexcept {
    swap(other);
    return *this;
  }

  Batch batch;
  RunFailure failure;  // of the last run

  // Returns the batch to the engine and publishes the requests that have ended. The outputs must be in the requests
  // before.
  void complete(Outcome outcome);

  // Ends all requests of the batch with `failure`.
  void fail();

  // To be called before the batch runs again: drops requests that have ended meanwhile. False if no request is left;
  // then the batch has been returned to the engine.
  bool drop_ended();

  bool out_of_memory() const { return failure.fault == Fault::kMemory; }

  // See Engine::split() and join(). Unlike there, split() may take the whole batch, which then is empty.
  HeldBatch split(const BatchCut& cut);
  void join(HeldBatch&& first);
  bool empty() const { return batch.ranges.empty(); }

  // See Engine::postpone().
  void postpone();

 private:
  void swap(HeldBatch& other) noexcept;

  Engine* engine_ = nullptr;
};

// The loop of one worker thread of a native model: takes batches from the engine, and answers or fails each.
// python/service_streamer/_models/serving.py does the same for predict functions.
//
// If the runner has a depth of more than 1, the next batch is launched while the previous one still runs, provided that
// it is due and cannot grow any more. A batch that fails is run again in parts, after all later launches have been
// answered, so that it has the device to itself.
class Worker {
 public:
  Worker(Engine& engine, Model& model, const WorkersOptions& options)
      : engine_(engine), model_(model), options_(options) {}

  // Makes the runner. Does not throw: if it fails, each batch tries again, and fails with the reason.
  void prepare();

  // Blocks until the engine is closed and empty.
  void run();

 private:
  // A launched batch. `run` is declared last, so that it is destroyed first: its destructor waits until the items are
  // unused.
  struct InFlight {
    explicit InFlight(Engine& engine) : held(engine) {}

    HeldBatch held;
    std::shared_ptr<PhaseLog> phases;
    std::unique_ptr<LaunchedBatch> run;
  };

  Engine::Ready next(Waiter& waiter, CloseReason& reason);
  void take(CloseReason reason);
  void launch(HeldBatch held);
  void finish_oldest();
  void recover(HeldBatch failed, bool others_in_flight);
  void serve(HeldBatch& held);
  void fail(HeldBatch failed);
  void isolate(HeldBatch failed);
  bool attempt(HeldBatch& held);
  void answer(HeldBatch& held);
  void prepare_run(const Batch& batch);
  void record(const Batch& batch, const std::shared_ptr<PhaseLog>& phases);
  void run_model(const Batch& batch);

  Engine& engine_;
  Model& model_;
  const WorkersOptions options_;

  std::unique_ptr<Runner> runner_;
  std::vector<ItemRange> ranges_;                  // of the current run
  std::vector<std::unique_ptr<Outputs>> outputs_;  // the same
  std::deque<InFlight> in_flight_;                 // oldest first
};

}  // namespace service_streamer::native
