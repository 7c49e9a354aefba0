#include "bindings/pickling/codec.h"

#include <structmember.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "bindings/pickling/array_pickle.h"
#include "bindings/pickling/plain_pickle.h"
#include "bindings/python/errors.h"
#include "bindings/python/libraries.h"
#include "service_streamer/wire/message.h"

namespace service_streamer::bindings {

// A Python object, because the pickler calls it with each buffer of protocol 5 (buffer_callback).
struct Encoder {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  std::shared_ptr<ipc::SharedPool> pool;
  std::string text;
  std::vector<std::uint64_t> ends;
  std::vector<ipc::Payload::Block> blocks;
};

namespace {

// Buffers of this size or more go into shared memory: it is cheaper than the socket, and worth a descriptor.
constexpr Py_ssize_t kLarge = 32 << 10;

// The GIL is released to copy or to allocate so many bytes.
constexpr std::size_t kLong = 1 << 20;

PyTypeObject* encoder_type = nullptr;
std::atomic<Encoder*> spare{nullptr};  // unused; spares most encodings an allocation

PyObject* dumps = nullptr;
PyObject* protocol = nullptr;
PyObject* dumps_names = nullptr;  // ("buffer_callback",)

PyObject* self_of(Encoder* encoder) {
  return reinterpret_cast<PyObject*>(encoder);
}

// Calls a function that handles so many bytes, without the GIL if that takes long.
template <typename Function>
CaughtError attempt_with(std::size_t size, Function function) {
  return size < kLong ? attempt(function) : attempt_without_gil(function);
}

void copy(void* to, const void* from, std::size_t size) {
  attempt_with(size, [&] { std::memcpy(to, from, size); });
}

// Whether the pool may use one more descriptor: most are left to the application and to results. All blocks in use may
// be of one message, so they must also fit into that.
bool may_have_another(const ipc::SharedPool& pool) {
  rlimit descriptors{};
  if (getrlimit(RLIMIT_NOFILE, &descriptors) != 0) return false;
  return pool.blocks_in_use() < std::min<rlim_t>(descriptors.rlim_cur / 8, ipc::kMaxDescriptors);
}

// A new block for the object that is being encoded. nullptr: no descriptors or memory are left, so the bytes go into
// the message.
void* add_block(Encoder* encoder, std::size_t size) {
  void* data = nullptr;
  if (encoder->pool == nullptr || !may_have_another(*encoder->pool)) return nullptr;
  const CaughtError failure = attempt_with(size, [&] {
    encoder->blocks.push_back({.item = static_cast<std::uint32_t>(encoder->ends.size()), .block = {}});
    encoder->blocks.back().block = encoder->pool->allocate(size, data);
  });
  if (!failure) return data;
  if (!encoder->blocks.empty() && encoder->blocks.back().block == nullptr) encoder->blocks.pop_back();
  return nullptr;
}

// The pickler's buffer_callback: true leaves the buffer in the pickle.
PyObject* take_buffer(PyObject* self, PyObject* const* args, size_t, PyObject*) {
  const Py_buffer* buffer = PyPickleBuffer_GetBuffer(args[0]);
  if (buffer == nullptr) return nullptr;
  if (buffer->len < kLarge) Py_RETURN_TRUE;
  void* data = add_block(reinterpret_cast<Encoder*>(self), static_cast<std::size_t>(buffer->len));
  if (data == nullptr) Py_RETURN_TRUE;
  copy(data, buffer->buf, static_cast<std::size_t>(buffer->len));
  Py_RETURN_FALSE;
}

PyObject* pickle(Encoder* encoder, PyObject* object) {
  // Torch pickles the numbers of tensors into the pickle. If it is loaded, our own dumps() makes buffers of them.
  if (torch_is_loaded() || contains_arrays(object)) {
    return python::dumps(object, self_of(encoder));
  }
  PyObject* args[] = {nullptr, object, protocol, self_of(encoder)};
  return PyObject_Vectorcall(dumps, args + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, dumps_names);
}

// Puts a large pickle into a block: the last block of its object, which then has no bytes.
bool add_large(Encoder* encoder, std::string_view before, const char* text, std::size_t size, std::string_view after) {
  auto* data = static_cast<char*>(add_block(encoder, before.size() + size + after.size()));
  if (data == nullptr) return false;
  before.copy(data, before.size());
  copy(data + before.size(), text, size);
  after.copy(data + before.size() + size, after.size());
  return true;
}

bool add_pickle(Encoder* encoder, PyObject* object) {
  PyObject* pickled = pickle(encoder, object);
  if (pickled == nullptr) return false;
  const char* text = PyBytes_AS_STRING(pickled);
  const Py_ssize_t size = PyBytes_GET_SIZE(pickled);
  CaughtError failure;
  if (size < kLarge || !add_large(encoder, {}, text, static_cast<std::size_t>(size), {})) {
    failure = attempt_with(static_cast<std::size_t>(size),
                           [&] { encoder->text.append(text, static_cast<std::size_t>(size)); });
  }
  Py_DECREF(pickled);
  return !failure.raise();
}

// The numbers of a small array, or of one that gets no block, go into the pickle.
bool add_array(Encoder* encoder, const PlainArray& array) {
  void* data = array.size() >= static_cast<std::size_t>(kLarge) ? add_block(encoder, array.size()) : nullptr;
  if (data != nullptr) copy(data, array.numbers(), array.size());
  std::string& text = encoder->text;
  const CaughtError failure = attempt_with(data != nullptr ? 0 : array.size(), [&] {
    if (data == nullptr) text.reserve(text.size() + array.size() + PlainArray::kMostAround);
    array.append_head(text);
    if (data != nullptr) {
      array.append_numbers_are_a_buffer(text);
    } else {
      array.append_numbers_follow(text);
      text.append(array.numbers(), array.size());
    }
    PlainArray::append_tail(text);
  });
  return !failure.raise();
}

// Appends the pickle of the object; false with an exception set.
bool add(Encoder* encoder, PyObject* object) {
  bool plain = false;
  if (attempt([&] { plain = append_plain(object, encoder->text); }).raise()) return false;
  if (plain) return true;
  if (PyBytes_CheckExact(object) && PyBytes_GET_SIZE(object) >= kLarge) {
    const BytesFrame frame(static_cast<std::size_t>(PyBytes_GET_SIZE(object)));
    if (add_large(encoder, frame.before(), PyBytes_AS_STRING(object),
                  static_cast<std::size_t>(PyBytes_GET_SIZE(object)), BytesFrame::after())) {
      return true;
    }
  }
  if (PlainArray array; array.hold(object)) {
    const bool added = add_array(encoder, array);
    array.release();
    return added;
  }
  return add_pickle(encoder, object);
}

// Drops what was added for an object that could not be encoded.
void undo(Encoder* encoder, std::size_t text, std::size_t blocks) {
  encoder->text.resize(text);
  while (encoder->blocks.size() > blocks) encoder->blocks.pop_back();
}

void encoder_dealloc(PyObject* self) {
  auto* encoder = reinterpret_cast<Encoder*>(self);
  std::destroy_at(&encoder->pool);
  std::destroy_at(&encoder->text);
  std::destroy_at(&encoder->ends);
  std::destroy_at(&encoder->blocks);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyMemberDef encoder_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Encoder, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot encoder_slots[] = {
    {Py_tp_doc, const_cast<char*>("Takes the large buffers of what is being pickled.")},
    {Py_tp_dealloc, reinterpret_cast<void*>(encoder_dealloc)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_members, encoder_members},
    {0, nullptr},
};

PyType_Spec encoder_spec = {"service_streamer._core.Encoder", sizeof(Encoder), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                            encoder_slots};

bool load_names() {
  dumps = import_member("_pickle", "dumps");
  if (dumps == nullptr) return false;
  protocol = PyLong_FromLong(5);
  dumps_names = Py_BuildValue("(s)", "buffer_callback");
  return protocol != nullptr && dumps_names != nullptr;
}

}  // namespace

bool make_encoder_type() {
  encoder_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&encoder_spec));
  return encoder_type != nullptr && load_names();
}

Encoder* begin_encoding(std::shared_ptr<ipc::SharedPool> pool) {
  Encoder* encoder = spare.exchange(nullptr);
  if (encoder == nullptr) {
    PyObject* self = encoder_type->tp_alloc(encoder_type, 0);
    if (self == nullptr) return nullptr;
    encoder = reinterpret_cast<Encoder*>(self);
    encoder->vectorcall = take_buffer;
    std::construct_at(&encoder->pool);
    std::construct_at(&encoder->text);
    std::construct_at(&encoder->ends);
    std::construct_at(&encoder->blocks);
  }
  encoder->pool = std::move(pool);
  return encoder;
}

void end_encoding(Encoder* encoder) {
  encoder->text.clear();
  encoder->ends.clear();
  encoder->blocks.clear();
  encoder->pool.reset();
  const bool keep = encoder->text.capacity() < static_cast<std::size_t>(kLarge) && Py_REFCNT(self_of(encoder)) == 1;
  if (keep) encoder = spare.exchange(encoder);
  if (encoder != nullptr) Py_DECREF(self_of(encoder));
}

bool encode(Encoder* encoder, PyObject* object) {
  const std::size_t text = encoder->text.size();
  const std::size_t blocks = encoder->blocks.size();
  const auto note_end = [&] { encoder->ends.push_back(encoder->text.size()); };
  if (add(encoder, object) && !attempt(note_end).raise()) return true;
  undo(encoder, text, blocks);
  return false;
}

bool finish(Encoder* encoder, ipc::Payload& payload) {
  const CaughtError failure = attempt_with(encoder->text.size(), [&] {
    payload.bytes = ipc::Bytes::copy_of(encoder->text);
    payload.ends = encoder->ends;
    payload.blocks = std::move(encoder->blocks);
  });
  return !failure.raise();
}

}  // namespace service_streamer::bindings
