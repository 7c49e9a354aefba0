#pragma once

#include <Python.h>

#include <memory>
#include <utility>
#include <vector>

#include "bindings/batches/batch.h"
#include "bindings/processes/received_batch.h"
#include "bindings/python/from_core.h"

namespace service_streamer::bindings {

// A batch of another process' engine on its way through a worker process: some of the ranges of a ReceivedBatch. If it
// is deleted before it is answered, its requests are lost.
class WorkerBatch final : public BatchBase {
 public:
  using ItemRange = ReceivedBatch::ItemRange;

  // Takes over one of the references to `received`.
  explicit WorkerBatch(ReceivedBatch* received) : received_(received) {}
  ~WorkerBatch() override;

  // Unpickles the items, once. Requests with an item that cannot be unpickled are answered with that error.
  bool unpack();

  const void* guard() const override { return received_->guard(); }
  bool from_this_process() const override { return received_->from_this_process(); }
  std::size_t ranges() const override { return ranges_.size(); }
  std::size_t size() const override { return count_items(ranges_); }
  TimePoint begun() const override { return received_->mark(); }
  const char* reason() const override { return to_string(received_->message.head.reason); }
  Duration age() const override { return received_->message.head.age; }
  RangeContext context_of(std::size_t range) const override;
  bool ended(std::size_t range) const override { return has_ended(ranges_[range], Clock::now()); }
  bool keeps_outputs() const override;
  bool complete(PyObject* outputs, DeferredWake* later) override;
  bool fail(PyObject* error) override;
  void isolate_by(std::shared_ptr<const Isolation> isolation) override { received_->isolation = std::move(isolation); }
  BatchCut next(Isolation& isolation) const override { return isolation.next(ranges_); }
  BatchBase* split(const BatchCut& cut) override;
  bool join(BatchBase& front) override;
  bool postpone() override;
  bool drop_ended() override;

 private:
  bool has_ended(const ItemRange& range, TimePoint now) const;
  bool distribute(PyObject* outputs);
  bool add_error(const PythonObject& maker, std::span<const ItemRange> ranges);
  bool close();
  bool take_out_answered();

  ReceivedBatch* const received_;
  std::vector<ItemRange> ranges_;  // those without a result
};

// The Batch object of a message that came; None if it was answered here: its items could not be unpickled. nullptr with
// an exception set. Takes `received` over.
PyObject* unpack(ReceivedBatch* received);

}  // namespace service_streamer::bindings
