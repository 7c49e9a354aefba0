#include "bindings/processes/worker_batch.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "bindings/batches/outputs.h"
#include "bindings/python/errors.h"

namespace service_streamer::bindings {
namespace {

void release(ReceivedBatch* received) {
  if (--received->references == 0) delete received;
}

// Whether `step` was done; else an exception is set, by it or for what it threw.
template <typename Step>
bool run(Step step) {
  bool done = false;
  const CaughtError failure = attempt([&] { done = step(); });
  return !failure.raise() && done;
}

}  // namespace

WorkerBatch::~WorkerBatch() {
  if (ranges() > 0 && from_this_process()) {
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    if (!run([&] { return add_error(python::dropped, ranges_) && close(); })) PyErr_WriteUnraisable(nullptr);
    PyErr_Restore(type, error, traceback);
  }
  release(received_);
}

bool WorkerBatch::add_error(const PythonObject& maker, std::span<const ItemRange> ranges) {
  PyObject* error = maker();
  const bool added = error != nullptr && received_->add_errors(ranges, error);
  Py_XDECREF(error);
  return added;
}

// Every range of this batch has its result. The items go first, for the reply may take a while to write.
bool WorkerBatch::close() {
  PyObject* before = nullptr;
  {
    const Locked lock(guard());
    ranges_.clear();
    before = std::exchange(items, nullptr);
  }
  Py_XDECREF(before);
  return received_->send_when_complete();
}

BatchBase::RangeContext WorkerBatch::context_of(std::size_t range) const {
  const ipc::RangeHead& head = received_->message.ranges[ranges_[range].index];
  return {.context = head.context.get(), .items = ranges_[range].count, .queue_time = head.queue_time};
}

// True also if the range has its result.
bool WorkerBatch::has_ended(const ItemRange& range, TimePoint now) const {
  return !received_->is_open(range) || received_->message.ranges[range.index].deadline <= now ||
         received_->link().cancelled(received_->id);
}

bool WorkerBatch::unpack() {
  traced = std::ranges::any_of(received_->message.ranges, [](const auto& range) { return range.context != nullptr; });
  items = PyList_New(0);
  return items != nullptr && run([&] { return received_->unpack(items, ranges_) && (ranges() > 0 || close()); });
}

// --- results ---

bool WorkerBatch::distribute(PyObject* outputs) {
  received_->count_predict();
  bool whole = received_->output_batch();
  PyObject* array = Py_NewRef(Py_None);
  if (!PyList_CheckExact(outputs) && !PyTuple_CheckExact(outputs)) {
    Py_SETREF(array, python::as_array(outputs));
    if (array == nullptr) return false;
    whole = whole || array != Py_None;
  }
  std::vector<std::uint32_t> counts(ranges_.size());
  std::ranges::transform(ranges_, counts.begin(), &ItemRange::count);
  std::vector<PyObject*> slices;
  const bool cut = cut_outputs(array != Py_None ? array : outputs, counts, whole, slices);
  Py_DECREF(array);
  if (!cut) return false;
  bool added = true;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    added = added && received_->add_outputs(ranges_[i], slices[i]);
    Py_DECREF(slices[i]);
  }
  return added && close();
}

// The outputs of a part of a range are pickled with the rest of the range, after further runs.
bool WorkerBatch::keeps_outputs() const {
  return std::ranges::any_of(ranges_, [this](const ItemRange& range) { return !received_->has_all(range); });
}

bool WorkerBatch::complete(PyObject* outputs, DeferredWake* /*later*/) {
  return run([&] { return distribute(outputs); });
}

bool WorkerBatch::fail(PyObject* error) {
  received_->count_predict();
  return run([&] { return received_->add_errors(ranges_, error) && close(); });
}

// --- for a batch that raised ---

BatchBase* WorkerBatch::split(const BatchCut& cut) {
  ++received_->references;
  auto* first = new WorkerBatch(received_);
  if (attempt([&] { first->ranges_ = ranges_; }).raise()) {
    delete first;
    return nullptr;
  }
  keep_before(cut, first->ranges_);
  {
    const Locked lock(guard());
    keep_after(cut, ranges_);
  }
  received_->isolated = true;
  return first;
}

bool WorkerBatch::join(BatchBase& front) {
  std::vector<ItemRange>& before = static_cast<WorkerBatch&>(front).ranges_;
  const auto put_back = [&] {
    const Locked lock(guard());
    ranges_.reserve(ranges_.size() + before.size());
    put_before(ranges_, before, [](const ItemRange&) {});
    before.clear();
  };
  return !attempt(put_back).raise();
}

bool WorkerBatch::take_out_answered() {
  bool taken = false;
  PyObject* before = Py_XNewRef(items);  // released without the lock
  {
    const Locked lock(guard());
    taken = take_out(ranges_, [this](const ItemRange& range) { return !received_->is_open(range); });
  }
  Py_XDECREF(before);
  return taken && (ranges() > 0 || close());
}

bool WorkerBatch::postpone() {
  return run([&] {
    for (const ItemRange& range : ranges_) {
      if (received_->is_whole(range) && !received_->postpone(range)) return false;
    }
    return take_out_answered();
  });
}

bool WorkerBatch::drop_ended() {
  const TimePoint now = Clock::now();
  return run([&] {
    for (const ItemRange& range : ranges_) {
      if (!received_->is_open(range) || !has_ended(range, now)) continue;
      if (!add_error(python::expired, {&range, 1})) return false;
    }
    return take_out_answered();
  });
}

PyObject* unpack(ReceivedBatch* received) {
  if (received->message.dropped_bytes > 0) {
    const bool answered = run([&] { return received->answer_unread(); });
    release(received);
    return answered ? Py_NewRef(Py_None) : nullptr;
  }
  if (!received->open()) {
    release(received);
    return nullptr;
  }
  auto* batch = new WorkerBatch(received);
  PyObject* object = make_batch(batch);
  if (object == nullptr) return nullptr;
  if (!batch->unpack()) {
    Py_CLEAR(object);
  } else if (batch->ranges() == 0) {
    Py_SETREF(object, Py_NewRef(Py_None));
  }
  return object;
}

}  // namespace service_streamer::bindings
