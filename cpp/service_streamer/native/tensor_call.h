#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "service_streamer/base/mutex.h"
#include "service_streamer/calls/call.h"
#include "service_streamer/native/model.h"

namespace service_streamer::native {

// The outputs of a range of a request, in a TensorCall.
struct Piece {
  std::uint32_t begin = 0;
  std::uint32_t count = 0;
  std::unique_ptr<Outputs> outputs;
};

// Why a request ended as kFailed.
struct RunFailure {
  Fault fault = Fault::kModel;
  std::string message = {};
  std::int64_t expected = 0;  // kOutputs
  std::int64_t received = 0;
};

// A request for the workers of a native model. Several of them may be at parts of it at the same time.
class TensorCall final : public Call {
 public:
  TensorCall(ItemsRef items, std::uint32_t size) : items_(std::move(items)) { request.size = size; }

  static TensorCall& of(Request& request) { return static_cast<TensorCall&>(Call::of(request)); }

  // As long as the caller has a hold.
  const Items& items() const { return *items_; }

  // What a worker brings, before it gives its batch back. The first failure stays; after the end nothing is taken. False: there
  // was no memory to keep it, and the call has failed.
  bool add(Piece piece) EXCLUDES(mutex_);
  void fail(const RunFailure& why) EXCLUDES(mutex_);

  // Written by publish(), read once it is published: in the order of the items, of one that was answered; or why not.
  std::vector<Piece> pieces;
  RunFailure failure;

  Observers observers;

  void publish() override;
  void drop_inputs() override;

 private:
  ~TensorCall() override = default;

  ItemsRef items_;

  Mutex mutex_;
  std::vector<Piece> arrived_ GUARDED_BY(mutex_);
  std::optional<RunFailure> failed_ GUARDED_BY(mutex_);
  bool ended_ GUARDED_BY(mutex_) = false;
};

}  // namespace service_streamer::native
