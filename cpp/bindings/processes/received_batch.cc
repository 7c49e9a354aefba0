#include "bindings/processes/received_batch.h"

#include <algorithm>
#include <utility>

#include "bindings/batches/outputs.h"
#include "bindings/python/errors.h"

namespace service_streamer::bindings {
namespace {

using ipc::ResultKind;

// Whether the outputs of a range are an array, whose rows are the outputs.
bool is_array(PyObject* outputs) {
  return !PyList_CheckExact(outputs) && !PyTuple_CheckExact(outputs);
}

// For an error that cannot even be converted to text.
PyObject* nameless_error() {
  return Py_BuildValue("[OsO]", Py_None, "an exception for whose text there was no memory", Py_None);
}

}  // namespace

ReceivedBatch::ReceivedBatch(WorkerLinkObject* link)
    : link_(reinterpret_cast<WorkerLinkObject*>(Py_NewRef(reinterpret_cast<PyObject*>(link)))) {}

ReceivedBatch::~ReceivedBatch() {
  for (RangeReply& reply : replies_) {
    for (const OutputRange& range : reply.outputs) Py_DECREF(range.outputs);
  }
  if (encoder_ != nullptr) end_encoding(encoder_);
  Py_DECREF(reinterpret_cast<PyObject*>(link_));
}

bool ReceivedBatch::open() {
  mark_ = Clock::now();
  const CaughtError failure = attempt([&] {
    replies_.resize(message.ranges.size());
    encoder_ = begin_encoding(link_->inline_outputs ? nullptr : link().pool());
  });
  open_ = replies_.size();
  return !failure.raise() && encoder_ != nullptr;
}

bool ReceivedBatch::answer_unread() {
  const CaughtError failure = attempt([&] { message.ranges.assign(1, {.items = 1}); });  // one result for all requests
  if (failure.raise() || !open()) return false;
  PyObject* size = PyLong_FromUnsignedLongLong(message.dropped_bytes);
  PyObject* error = size != nullptr ? python::unread(size) : nullptr;
  const bool answered =
      error != nullptr && add_error({.index = 0, .begin = 0, .count = 1}, error) && send_when_complete();
  Py_XDECREF(error);
  Py_XDECREF(size);
  return answered;
}

bool ReceivedBatch::from_this_process() const {
  return link_->fork_generation == fork_generation();
}

void ReceivedBatch::count(Duration& time) {
  const TimePoint now = Clock::now();
  time += now - std::exchange(mark_, now);
}

// --- items ---

// Answers a range with what unpickling raised. That may be SystemExit: it must not end other requests.
bool ReceivedBatch::refuse(const ItemRange& range) {
  PyObject* reason = take_exception(true);
  PyObject* refused = python::refuse_input(reason);
  const bool added = refused != nullptr && add_error(range, refused);
  Py_XDECREF(refused);
  Py_DECREF(reason);
  return added;
}

bool ReceivedBatch::unpack(PyObject* items, std::vector<ItemRange>& ranges) {
  std::uint32_t index = 0;
  for (const ipc::RangeHead& head : message.ranges)
    ranges.push_back({.index = index++, .begin = 0, .count = head.items});
  std::size_t first = 0;
  bool unpacked = true;
  for (const ItemRange& range : ranges) {
    const Py_ssize_t before = PyList_GET_SIZE(items);
    if (!decode_items(message.payload, first, range.count, items)) {
      unpacked = refuse(range) && PyList_SetSlice(items, before, PyList_GET_SIZE(items), nullptr) == 0;
      if (!unpacked) break;
    }
    first += range.count;
  }
  std::erase_if(ranges, [this](const ItemRange& range) { return !is_open(range); });
  message.payload = {};
  count(decode_);
  return unpacked;
}

// --- results ---

void ReceivedBatch::set_result(RangeReply& reply, std::int64_t result, ResultKind kind) {
  if (reply.result < 0) --open_;
  reply.result = result;
  reply.kind = kind;
}

std::int64_t ReceivedBatch::encode_error(PyObject* error) {
  PyObject* fit = python::for_callers(error);
  PyObject* packed = fit != nullptr ? python::pack_error(fit) : nullptr;
  Py_XDECREF(fit);
  if (packed == nullptr) {
    PyErr_Clear();
    packed = nameless_error();
  }
  const bool encoded = packed != nullptr && encode(encoder_, packed);
  Py_XDECREF(packed);
  return encoded ? encoded_++ : -1;
}

bool ReceivedBatch::add_errors(std::span<const ItemRange> ranges, PyObject* error) {
  const std::int64_t result = encode_error(error);
  if (result < 0) return false;
  for (const ItemRange& range : ranges) {
    if (is_open(range)) set_result(replies_[range.index], result, ResultKind::kError);
  }
  return true;
}

bool ReceivedBatch::encode_outputs(RangeReply& reply, PyObject* outputs) {
  PyObject* error = Py_XNewRef(exception_in(outputs));
  if (error == nullptr) {
    if (encode(encoder_, outputs)) {
      set_result(reply, encoded_++, !output_batch() && is_array(outputs) ? ResultKind::kRows : ResultKind::kOutputs);
      return true;
    }
    PyObject* reason = take_exception(true);
    error = python::refuse_output(reason, outputs);
    Py_DECREF(reason);
    if (error == nullptr) return false;
  }
  const std::int64_t result = encode_error(error);
  Py_DECREF(error);
  if (result < 0) return false;
  set_result(reply, result, ResultKind::kError);
  return true;
}

bool ReceivedBatch::encode_joined(RangeReply& reply) {
  std::sort(reply.outputs.begin(), reply.outputs.end(),
            [](const OutputRange& a, const OutputRange& b) { return a.begin < b.begin; });
  PyObject* list = PyList_New(0);
  bool as_batch = output_batch();
  for (const OutputRange& range : reply.outputs) {
    as_batch = as_batch || is_array(range.outputs);
    if (list != nullptr && PyList_Append(list, range.outputs) < 0) Py_CLEAR(list);
  }
  PyObject* joined = list != nullptr ? join_outputs(list, as_batch) : nullptr;
  Py_XDECREF(list);
  if (joined == nullptr) return false;
  const bool encoded = encode_outputs(reply, joined);
  Py_DECREF(joined);
  return encoded;
}

bool ReceivedBatch::add_outputs(const ItemRange& range, PyObject* outputs) {
  if (!is_open(range)) return true;  // other items of it failed
  RangeReply& reply = replies_[range.index];
  if (has_all(range)) return encode_outputs(reply, outputs);
  if (PyObject* error = exception_in(outputs)) return add_error(range, error);
  reply.outputs.push_back({.begin = range.begin, .outputs = Py_NewRef(outputs)});
  reply.answered += range.count;
  return reply.answered < message.ranges[range.index].items || encode_joined(reply);
}

bool ReceivedBatch::postpone(const ItemRange& range) {
  if (!encode(encoder_, Py_None)) return false;
  set_result(replies_[range.index], encoded_++, ResultKind::kPostponed);
  return true;
}

// --- the reply ---

void ReceivedBatch::make_reply(const ipc::Payload& payload, ipc::ReplyMessage& reply) const {
  reply.isolated = isolated;
  if (isolation != nullptr) reply.memory = isolation->lesson();
  reply.out_of_memory = message.dropped_bytes > 0;
  reply.decode = decode_;
  reply.predict = predict_;
  reply.encode = encode_;
  for (const RangeReply& range : replies_) {
    const auto item = static_cast<std::size_t>(range.result);
    const std::uint64_t begin = payload.begin_of(item);
    ipc::Result result{
        .kind = range.kind, .bytes = payload.bytes.slice(begin, payload.ends[item] - begin), .blocks = {}};
    const auto blocks = std::ranges::equal_range(payload.blocks, item, {}, &ipc::Payload::Block::item);
    for (const ipc::Payload::Block& block : blocks) result.blocks.push_back(block.block);
    reply.results.push_back(std::move(result));
  }
}

bool ReceivedBatch::send_when_complete() {
  if (open_ > 0) return true;
  count_encode();
  struct Out {
    ipc::Payload payload;
    ipc::ReplyMessage reply;
  };
  auto* out = new Out;
  bool sent = finish(encoder_, out->payload);
  if (sent) {
    const CaughtError failure = attempt_without_gil([&] {
      make_reply(out->payload, out->reply);
      link().reply(id, out->reply);
    });
    sent = !failure.raise();
  }
  delete out;
  return sent;
}

}  // namespace service_streamer::bindings
