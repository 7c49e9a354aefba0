#pragma once

#include <Python.h>

#include <cstdint>
#include <span>
#include <vector>

#include "bindings/futures/future.h"
#include "bindings/pickling/codec.h"
#include "bindings/processes/worker_link.h"
#include "service_streamer/base/clock.h"
#include "service_streamer/wire/message.h"

namespace service_streamer::bindings {

// A batch as it came over the link, and the reply to it while that is being made: one result for each part, which is what the
// batch has of one request. Sent when the last part has its result. Used with the GIL held, and shared by the pieces of a batch
// that was split.
class ReceivedBatch {
 public:
  explicit ReceivedBatch(WorkerLinkObject* link);
  ~ReceivedBatch();
  ReceivedBatch(const ReceivedBatch&) = delete;
  ReceivedBatch& operator=(const ReceivedBatch&) = delete;

  // The message. To be filled, and then opened, which takes its time from here; false with MemoryError set.
  std::uint64_t id = 0;
  ipc::BatchMessage message;
  bool open();

  // Instead, where there was no memory for the message: answers it with that. False with an exception set.
  bool answer_unread();

  std::uint32_t references = 1;  // batch objects
  bool isolated = false;

  bool from_this_process() const;
  bool output_batch() const { return link_->output_batch; }
  ipc::WorkerLink& link() const { return *link_->link; }

  // A range of the items of a part.
  struct ItemRange {
    std::uint32_t part = 0;
    std::uint32_t begin = 0;
    std::uint32_t count = 0;
  };

  // Unpickles the items of all parts into a list. Parts with an item that cannot be have their result then. False with an
  // exception set: it is none of their fault; `shares` are then all those that have no result.
  bool unpack(PyObject* items, std::vector<ItemRange>& shares);

  // Whether it is all of a request, not only of the part.
  bool is_whole(const ItemRange& share) const {
    const ipc::RangeHead& part = message.parts[share.part];
    return part.whole && share.count == part.items;
  }

  bool is_open(const ItemRange& share) const { return parts_[share.part].result < 0; }

  // These give a part its result, once all of it is there. False with an exception set: it is none that could be told its
  // caller (a signal, a full memory).
  bool add_outputs(const ItemRange& share, PyObject* outputs);
  bool add_error(const ItemRange& share, PyObject* error) { return add_errors({&share, 1}, error); }
  bool add_errors(std::span<const ItemRange> shares, PyObject* error);

  // Has the engine run it alone later.
  bool postpone(const ItemRange& share);

  // Sends the reply if every part has its result: blocks without the GIL until it is written. False with an exception set.
  bool send_when_complete();

  // Since when what happens was not counted: after unpack(), since when the model runs.
  TimePoint mark() const { return mark_; }

  // What passed since the last call counts as ...
  void count_predict() { count(predict_); }
  void count_encode() { count(encode_); }

 private:
  struct Part {
    std::vector<OutputRange> pieces;  // outputs of a part that was split
    std::uint32_t answered = 0;       // items that have outputs
    std::int64_t result = -1;         // its number among those encoded
    ipc::ResultKind kind = ipc::ResultKind::kOutputs;
  };

  void count(Duration& time);
  bool refuse(const ItemRange& share);
  bool encode_outputs(Part& part, PyObject* outputs);
  std::int64_t encode_error(PyObject* error);
  bool join_pieces(Part& part);
  void set_result(Part& part, std::int64_t result, ipc::ResultKind kind);
  void make_reply(const ipc::Payload& payload, ipc::ReplyMessage& reply) const;

  WorkerLinkObject* const link_;
  Encoder* encoder_ = nullptr;
  std::int64_t encoded_ = 0;
  std::vector<Part> parts_;
  std::size_t open_ = 0;  // parts without a result
  TimePoint mark_;
  Duration decode_{0};
  Duration predict_{0};
  Duration encode_{0};
};

// Whether it goes on where the first one ends.
inline bool follows(const ReceivedBatch::ItemRange& first, const ReceivedBatch::ItemRange& second) {
  return first.part == second.part && first.begin + first.count == second.begin;
}

}  // namespace service_streamer::bindings
