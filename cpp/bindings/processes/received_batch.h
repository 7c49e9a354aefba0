#pragma once

#include <Python.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "bindings/futures/future.h"
#include "bindings/pickling/codec.h"
#include "bindings/processes/worker_link.h"
#include "service_streamer/base/clock.h"
#include "service_streamer/batching/isolation.h"
#include "service_streamer/wire/message.h"

namespace service_streamer::bindings {

// A batch that came over the link, and the reply to it: one result for each range of the message. The reply
// is sent when the last range has its result. Shared by the WorkerBatches of a batch that was split. Needs the GIL.
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

  std::atomic<std::uint32_t> references = 1;  // WorkerBatches
  bool isolated = false;
  std::shared_ptr<const Isolation> isolation;  // of the whole batch

  const void* guard() const { return link_; }
  bool from_this_process() const;
  bool output_batch() const { return link_->output_batch; }
  ipc::WorkerLink& link() const { return *link_->link; }

  // Some of the items of one range of the message.
  struct ItemRange {
    std::uint32_t index = 0;  // of the range of the message
    std::uint32_t begin = 0;
    std::uint32_t count = 0;
  };

  // Unpickles the items of all ranges into a list. A range with an item that cannot be unpickled gets that error as its
  // result. `ranges` are those without a result. False with an exception set that no item caused.
  bool unpack(PyObject* items, std::vector<ItemRange>& ranges);

  // Whether it is all of a range of the message.
  bool has_all(const ItemRange& range) const { return range.count == message.ranges[range.index].items; }

  // Whether the range is a whole request.
  bool is_whole(const ItemRange& range) const { return message.ranges[range.index].whole && has_all(range); }

  bool is_open(const ItemRange& range) const { return replies_[range.index].result < 0; }

  // These give a range of the message its result. If it was split, its outputs are joined when the last ones have come.
  // False with an exception set that is not the request's (a signal, no memory).
  bool add_outputs(const ItemRange& range, PyObject* outputs);
  bool add_error(const ItemRange& range, PyObject* error) { return add_errors({&range, 1}, error); }
  bool add_errors(std::span<const ItemRange> ranges, PyObject* error);

  // Has the engine run the request alone later.
  bool postpone(const ItemRange& range);

  // Sends the reply if every range has its result: blocks without the GIL until it is written. False with an exception
  // set.
  bool send_when_complete();

  // The end of the last period that was counted. After unpack(): when the model began to run.
  TimePoint mark() const { return mark_; }

  // The time since mark() counts as time of the model, or for encoding.
  void count_predict() { count(predict_); }
  void count_encode() { count(encode_); }

 private:
  // The result of a range of the message.
  struct RangeReply {
    std::vector<OutputRange> outputs;  // if it was split
    std::uint32_t answered = 0;        // items that have outputs
    std::int64_t result = -1;          // index among the encoded objects; -1: none yet
    ipc::ResultKind kind = ipc::ResultKind::kOutputs;
  };

  void count(Duration& time);
  bool refuse(const ItemRange& range);
  bool encode_outputs(RangeReply& reply, PyObject* outputs);
  std::int64_t encode_error(PyObject* error);
  bool encode_joined(RangeReply& reply);
  void set_result(RangeReply& reply, std::int64_t result, ipc::ResultKind kind);
  void make_reply(const ipc::Payload& payload, ipc::ReplyMessage& reply) const;

  WorkerLinkObject* const link_;
  Encoder* encoder_ = nullptr;
  std::int64_t encoded_ = 0;
  std::vector<RangeReply> replies_;
  std::size_t open_ = 0;  // ranges without a result
  TimePoint mark_;
  Duration decode_{0};
  Duration predict_{0};
  Duration encode_{0};
};

// Whether the second range begins where the first one ends.
inline bool follows(const ReceivedBatch::ItemRange& first, const ReceivedBatch::ItemRange& second) {
  return first.index == second.index && first.begin + first.count == second.begin;
}

}  // namespace service_streamer::bindings
