#pragma once

#include <Python.h>

#include <memory>
#include <utility>

#include "bindings/batches/batch.h"
#include "bindings/futures/engine_object.h"
#include "service_streamer/batching/batch.h"

namespace service_streamer::bindings {

// A batch of this process' engine on its way through a Python worker. Deleted before it is answered, its requests are
// lost.
class EngineBatch final : public BatchBase {
 public:
  explicit EngineBatch(EngineObject* engine);
  ~EngineBatch() override;

  // Takes what waits in the queue, for a worker whose turn it is (Engine::Ready::kBatch). False without an exception:
  // nothing waits any more.
  bool cut(CloseReason reason, const ItemWeights& live);

  // Of the batches of the engine that the calling thread has taken and not answered.
  static ItemWeights live_items(const EngineObject* engine);

  // The idents of the threads that have batches of the engine, but of requests that have all ended: a new list.
  static PyObject* unwanted_threads(const EngineObject* engine);

  const void* guard() const override { return engine_; }
  bool from_this_process() const override;
  std::size_t ranges() const override { return batch_.ranges.size(); }
  std::size_t size() const override { return batch_.items; }
  TimePoint begun() const override { return batch_.dispatched; }
  const char* reason() const override { return to_string(batch_.reason); }
  Duration age() const override { return batch_.age; }
  RangeContext context_of(std::size_t range) const override;
  bool ended(std::size_t range) const override;
  bool keeps_outputs() const override { return engine_->copy_outputs; }
  bool complete(PyObject* outputs, DeferredWake* later) override;
  bool fail(PyObject* error) override;
  void isolate_by(std::shared_ptr<const Isolation> isolation) override { isolation_ = std::move(isolation); }
  BatchCut next(Isolation& isolation) const override { return isolation.next(batch_.ranges); }
  BatchBase* split(const BatchCut& cut) override;
  bool join(BatchBase& front) override;
  bool postpone() override { return take_out_by(&Engine::postpone); }
  bool drop_ended() override { return take_out_by(&Engine::drop_ended); }

 private:
  bool take_out_by(void (Engine::*step)(Batch&, EndedRequests&, ReleasedRequests&));
  void end(Outcome outcome, DeferredWake* later = nullptr);

  EngineObject* const engine_;
  const unsigned long thread_ = PyThread_get_thread_ident();
  Batch batch_;
  std::shared_ptr<const Isolation> isolation_;  // of the whole batch
  EngineBatch* newer_ = nullptr;                // in the list of the engine
  EngineBatch* older_ = nullptr;
};

}  // namespace service_streamer::bindings
