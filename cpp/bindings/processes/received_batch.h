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

// A batch that came over the link, and the reply to it: one result for each part of the message. A part is a range of
// one request. The reply is sent when the last part has its result. Shared by the WorkerBatches of a batch that was
// split. Needs the GIL.
class ReceivedBatch {
 public:
  explicit ReceivedBatch(WorkerLinkObject* link);
  ~ReceivedBatch();
  ReceivedBatch(const ReceivedBatch&) = delete;
  ReceivedBatch& operator=(const ReceivedBatch&) = delete;

  // The message. It is filled by the link, and then opened: the time for decoding counts from there. False with
  // MemoryError set.
  std::uint64_t id = 0;
  ipc::BatchMessage message;
  bool open();

  // Instead of open(), if there was no memory for the message: answers it with that error. False with an exception set.
  bool answer_unread();

  std::uint32_t references = 1;  // WorkerBatches
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

  // Unpickles the items of all parts into a list. A part with an item that cannot be unpickled gets that error as its
  // result. `ranges` are the parts without a result. False with an exception set that no item caused.
  bool unpack(PyObject* items, std::vector<ItemRange>& ranges);

  // Whether the range is a whole request.
  bool is_whole(const ItemRange& range) const {
    const ipc::RangeHead& part = message.parts[range.part];
    return part.whole && range.count == part.items;
  }

  bool is_open(const ItemRange& range) const { return parts_[range.part].result < 0; }

  // These give a part its result. Outputs of ranges are joined when the last one has come. False with an exception set
  // that is not the request's (a signal, no memory).
  bool add_outputs(const ItemRange& range, PyObject* outputs);
  bool add_error(const ItemRange& range, PyObject* error) { return add_errors({&range, 1}, error); }
  bool add_errors(std::span<const ItemRange> ranges, PyObject* error);

  // Has the engine run the request alone later.
  bool postpone(const ItemRange& range);

  // Sends the reply if every part has its result: blocks without the GIL until it is written. False with an exception
  // set.
  bool send_when_complete();

  // The end of the last period that was counted. After unpack(): when the model began to run.
  TimePoint mark() const { return mark_; }

  // The time since mark() counts as time of the model, or for encoding.
  void count_predict() { count(predict_); }
  void count_encode() { count(encode_); }

 private:
  struct Part {
    std::vector<OutputRange> pieces;  // outputs of its ranges, if it was split
    std::uint32_t answered = 0;       // items that have outputs
    std::int64_t result = -1;         // index among the encoded objects; -1: none yet
    ipc::ResultKind kind = ipc::ResultKind::kOutputs;
  };

  void count(Duration& time);
  bool refuse(const ItemRange& range);
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

// Whether the second range begins where the first one ends.
inline bool follows(const ReceivedBatch::ItemRange& first, const ReceivedBatch::ItemRange& second) {
  return first.part == second.part && first.begin + first.count == second.begin;
}

}  // namespace service_streamer::bindings
