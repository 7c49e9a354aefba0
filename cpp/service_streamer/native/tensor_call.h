#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "service_streamer/base/mutex.h"
#include "service_streamer/calls/call.h"
#include "service_streamer/native/batch_record.h"
#include "service_streamer/native/model.h"

namespace service_streamer::native {

// The outputs of a range of a request, as TensorCall keeps them.
struct OutputRange {
  std::uint32_t begin = 0;
  std::uint32_t count = 0;
  std::unique_ptr<Outputs> outputs;
};

// Why a request ended with Outcome::kFailed.
struct RunFailure {
  Fault fault = Fault::kModel;
  std::string message = {};
  std::int64_t expected = 0;  // number of outputs; for Fault::kOutputs
  std::int64_t received = 0;  // the same
};

// A request for the workers of a native model. Several workers may run ranges of one request at the same time.
//
// add() and fail() are called by worker threads, until the engine ends the request. publish() ends the collection;
// after that the result does not change and any thread may read it. Nothing here blocks.
class TensorCall final : public Call {
 public:
  TensorCall(ItemsRef items, std::uint32_t size) : items_(std::move(items)) { request.size = size; }

  static TensorCall& of(Request& request) { return static_cast<TensorCall&>(Call::of(request)); }

  // Valid until drop_inputs().
  const Items& items() const { return *items_; }

  // A worker hands over the outputs of a range, or the reason of a failure, before it completes the batch. Only the
  // first failure is kept, and later outputs are dropped. After publish() both calls do nothing. add() returns false if
  // there was no memory to keep the outputs; the request has then failed.
  bool add(OutputRange range) EXCLUDES(mutex_);
  void fail(const RunFailure& why) EXCLUDES(mutex_);

  // A worker hands over the record of a batch, also after publish(). Throws std::bad_alloc.
  void note(const std::shared_ptr<BatchRecord>& record) EXCLUDES(mutex_);
  // Removes and returns the records. Any thread may call it.
  std::vector<std::shared_ptr<BatchRecord>> take_records() EXCLUDES(mutex_);

  // Written by publish() and read after it. `outputs` is in the order of the items, and empty unless the request was
  // answered.
  std::vector<OutputRange> outputs;
  RunFailure failure;

  Observers observers;

  void publish() noexcept override;
  void drop_inputs() override;

 private:
  ~TensorCall() override = default;

  ItemsRef items_;

  Mutex mutex_;
  std::vector<OutputRange> arrived_ GUARDED_BY(mutex_);
  std::optional<RunFailure> failed_ GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<BatchRecord>> records_ GUARDED_BY(mutex_);
  bool ended_ GUARDED_BY(mutex_) = false;
};

}  // namespace service_streamer::native
