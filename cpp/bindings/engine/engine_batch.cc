#include "bindings/engine/engine_batch.h"

#include <map>
#include <utility>

#include "bindings/engine/distribute.h"
#include "bindings/engine/thread_backend.h"
#include "bindings/futures/future.h"
#include "bindings/python/errors.h"
#include "bindings/python/fork.h"
#include "bindings/python/free_threading.h"

namespace service_streamer::bindings {

EngineBatch::EngineBatch(EngineObject* engine)
    : engine_(reinterpret_cast<EngineObject*>(Py_NewRef(reinterpret_cast<PyObject*>(engine)))) {
  const Locked lock(engine_);
  older_ = std::exchange(engine_->batches, this);
  if (older_ != nullptr) older_->newer_ = this;
}

EngineBatch::~EngineBatch() {
  if (ranges() > 0 && from_this_process()) end(Outcome::kLost);
  {
    const Locked lock(engine_);
    (newer_ != nullptr ? newer_->older_ : engine_->batches) = older_;
    if (older_ != nullptr) older_->newer_ = newer_;
  }
  Py_DECREF(reinterpret_cast<PyObject*>(engine_));
}

bool EngineBatch::from_this_process() const {
  return engine_->fork_generation == fork_generation();
}

ItemWeights EngineBatch::live_items(const EngineObject* engine) {
  ItemWeights live;
  const Locked lock(engine);
  for (const EngineBatch* batch = engine->batches; batch != nullptr; batch = batch->older_) {
    if (batch->thread_ != PyThread_get_thread_ident()) continue;
    for (const RequestRange& range : batch->batch_.ranges) live.add(range);
  }
  return live;
}

PyObject* EngineBatch::unwanted_threads(const EngineObject* engine) {
  std::map<unsigned long, bool> unwanted;
  const CaughtError failure = attempt([&] {
    const Locked lock(engine);
    for (const EngineBatch* batch = engine->batches; batch != nullptr; batch = batch->older_) {
      if (batch->ranges() == 0) continue;
      bool& all = unwanted.try_emplace(batch->thread_, true).first->second;
      all = all && batch->all_ended();
    }
  });
  PyObject* threads = failure.raise() ? nullptr : PyList_New(0);
  for (const auto& [thread, all] : unwanted) {
    if (threads == nullptr || !all) continue;
    PyObject* ident = PyLong_FromUnsignedLong(thread);
    if (ident == nullptr || PyList_Append(threads, ident) < 0) Py_CLEAR(threads);
    Py_XDECREF(ident);
  }
  return threads;
}

bool EngineBatch::cut(CloseReason reason, const ItemWeights& live) {
  EndedRequests expired;
  bool any = false;
  const CaughtError failure = attempt([&] {
    const Locked lock(engine_);
    any = engine_->engine->cut(batch_, reason, expired, live);
  });
  if (failure.raise()) return false;
  if (any) {
    items = PyList_New(static_cast<Py_ssize_t>(batch_.items));
    Py_ssize_t next = 0;
    for (const RequestRange& range : batch_.ranges) {
      if (items == nullptr) break;
      const FutureObject* future = future_of(*range.request);
      traced = traced || range.request->context != nullptr;
      PyObject** all = PySequence_Fast_ITEMS(future->items != nullptr ? future->items : future->value);
      for (std::uint32_t i = range.begin; i < range.begin + range.count; ++i) {
        PyList_SET_ITEM(items, next++, Py_NewRef(all[i]));
      }
    }
  }
  engine_->backend->publish(expired);
  return items != nullptr;
}

BatchBase::RangeContext EngineBatch::context_of(std::size_t range) const {
  const Request& request = *batch_.ranges[range].request;
  return {.context = request.context.get(),
          .items = batch_.ranges[range].count,
          .queue_time = request.taken - request.arrived};
}

bool EngineBatch::ended(std::size_t range) const {
  return batch_.ranges[range].request->completion.done();
}

// Gives the batch back to the engine, and the requests that ended what their futures have in `outputs`.
void EngineBatch::end(Outcome outcome, DeferredWake* later) {
  EndedRequests ended;
  ReleasedRequests released;
  if (isolation_ != nullptr) engine_->engine->learn(batch_.whole, isolation_->lesson());
  {
    const Locked lock(engine_);
    engine_->engine->complete(batch_, outcome, ended, released);
  }
  for (Request* request = ended.first; request != nullptr; request = request->next_ended) {
    FutureObject* future = future_of(*request);
    if (request->outcome == Outcome::kFailed) {
      const Locked lock(future);  // another thread may have a batch with a range that has failed, too
      std::swap(future->exception, future->outputs);
    } else if (request->outcome == Outcome::kAnswered) {
      finish_value(future, engine_->output_batch);
    }
  }
  if (released.count > 0) later = nullptr;  // let_go() may run finalisers
  publish_ended(ended, later);
  engine_->backend->let_go(released);
  PyObject* before = exchange_items(nullptr);
  if (later != nullptr) later->before_dropping(before);
  Py_XDECREF(before);
}

bool EngineBatch::complete(PyObject* outputs, DeferredWake* later) {
  if (!distribute(outputs, batch_, engine_->output_batch)) return false;
  end(Outcome::kAnswered, later);
  return true;
}

// Raising an exception changes it, and callers raise theirs in their own threads. So each gets a copy, if there is
// memory.
bool EngineBatch::fail(PyObject* error) {
  PyObject* copies = PyList_New(0);
  bool copied = copies != nullptr && PyList_Append(copies, error) == 0;
  for (std::size_t i = 1; copied && i < ranges(); ++i) {
    PyObject* copy = python::copy_error(error);
    copied = copy != nullptr && PyList_Append(copies, copy) == 0;
    Py_XDECREF(copy);
  }
  if (!copied) PyErr_Clear();
  for (std::size_t i = 0; i < ranges(); ++i) {
    set_outputs(future_of(*batch_.ranges[i].request),
                copied ? PyList_GET_ITEM(copies, static_cast<Py_ssize_t>(i)) : error);
  }
  Py_XDECREF(copies);
  end(Outcome::kFailed);
  return true;
}

BatchBase* EngineBatch::split(const BatchCut& cut) {
  auto* first = new EngineBatch(engine_);
  const CaughtError failure = attempt([&] {
    const Locked lock(engine_);
    engine_->engine->split(batch_, cut, first->batch_);
  });
  if (!failure.raise()) return first;
  delete first;
  return nullptr;
}

bool EngineBatch::join(BatchBase& front) {
  const CaughtError failure = attempt([&] {
    const Locked lock(engine_);
    engine_->engine->join(batch_, static_cast<EngineBatch&>(front).batch_);
  });
  return !failure.raise();
}

// The engine clears the request of each range that it takes out.
bool EngineBatch::take_out_by(void (Engine::*step)(Batch&, EndedRequests&, ReleasedRequests&)) {
  EndedRequests ended;
  ReleasedRequests released;
  bool kept = false;
  PyObject* before = Py_XNewRef(items);  // released without the lock
  {
    const Locked lock(engine_);
    (engine_->engine->*step)(batch_, ended, released);
    kept = take_out(batch_.ranges, [](const RequestRange& range) { return range.request == nullptr; });
  }
  Py_XDECREF(before);
  engine_->backend->publish(ended);
  engine_->backend->let_go(released);
  if (kept && ranges() == 0) end(Outcome::kAnswered);
  return kept;
}

}  // namespace service_streamer::bindings
