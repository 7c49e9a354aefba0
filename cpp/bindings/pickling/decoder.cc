#include <algorithm>
#include <utility>
#include <vector>

#include "bindings/pickling/codec.h"
#include "bindings/pickling/plain_pickle.h"
#include "bindings/pickling/shared_buffer.h"
#include "bindings/python/libraries.h"

namespace service_streamer::bindings {
namespace {

using ipc::BlockRef;

// Smaller pickles are copied for the unpickler: a bytes object is cheaper than a memoryview.
constexpr Py_ssize_t kCopied = 4 << 10;

PyObject* loads = nullptr;
PyObject* loads_names = nullptr;  // ("buffers",)

// The blocks as buffers for the unpickler. If there are no bytes, the last block is the pickle.
PyObject* map_blocks(const BlockRef* blocks, std::size_t count) {
  PyObject* buffers = PyTuple_New(static_cast<Py_ssize_t>(count));
  for (std::size_t i = 0; buffers != nullptr && i < count; ++i) {
    PyObject* buffer = make_shared_buffer(blocks[i]);
    if (buffer == nullptr) {
      Py_CLEAR(buffers);
    } else {
      PyTuple_SET_ITEM(buffers, static_cast<Py_ssize_t>(i), buffer);
    }
  }
  return buffers;
}

// Steals `source` and `buffers` (nullptr: none).
PyObject* unpickle(PyObject* source, PyObject* buffers) {
  PyObject* object = nullptr;
  if (source != nullptr) {
    PyObject* args[] = {nullptr, source, buffers};
    object = PyObject_Vectorcall(loads, args + 1, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET,
                                 buffers != nullptr ? loads_names : nullptr);
  }
  Py_XDECREF(source);
  Py_XDECREF(buffers);
  return object;
}

PyObject* decode_large(const ipc::Bytes& bytes, const BlockRef* blocks, std::size_t count) {
  PyObject* buffers = map_blocks(blocks, count);
  if (buffers == nullptr) return nullptr;
  if (!bytes.empty()) {
    char* text = const_cast<char*>(bytes.text().data());
    return unpickle(PyMemoryView_FromMemory(text, static_cast<Py_ssize_t>(bytes.size()), PyBUF_READ), buffers);
  }
  PyObject* last = PyTuple_GET_ITEM(buffers, static_cast<Py_ssize_t>(count) - 1);
  PyObject* object = read_plain(text_of_shared_buffer(last));
  if (object == nullptr && PyErr_Occurred() == nullptr) return unpickle(Py_NewRef(last), buffers);
  Py_DECREF(buffers);
  return object;
}

// --- for the tests ---

// The items of a request as a worker sees them, unpacked several times.
PyObject* travel(PyObject*, PyObject* args) {
  PyObject* items;
  int times;
  if (!PyArg_ParseTuple(args, "O!i", &PyTuple_Type, &items, &times)) return nullptr;
  auto* payload = new ipc::Payload;
  PyObject* seen = encode_items(items, *payload) ? PyList_New(0) : nullptr;
  for (int i = 0; seen != nullptr && i < times; ++i) {
    PyObject* batch = PyList_New(0);
    const bool decoded = batch != nullptr && decode_items(*payload, 0, payload->items(), batch);
    if (!decoded || PyList_Append(seen, batch) < 0) Py_CLEAR(seen);
    Py_XDECREF(batch);
  }
  delete payload;
  return seen;
}

PyMethodDef functions[] = {
    {"_travel", travel, METH_VARARGS,
     "_travel($module, items, times, /)\n--\n\n"
     "For tests: packs a tuple of items as for a worker, and unpacks that so many times."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool make_decoder(PyObject* module) {
  loads = import_member("_pickle", "loads");
  if (loads == nullptr) return false;
  loads_names = Py_BuildValue("(s)", "buffers");
  return loads_names != nullptr && PyModule_AddFunctions(module, functions) == 0;
}

PyObject* decode(const ipc::Bytes& bytes, const BlockRef* blocks, std::size_t count) {
  if (count > 0) return decode_large(bytes, blocks, count);
  PyObject* object = read_plain(bytes.text());
  if (object != nullptr || PyErr_Occurred() != nullptr) return object;
  const auto size = static_cast<Py_ssize_t>(bytes.size());
  char* text = const_cast<char*>(bytes.text().data());
  return unpickle(
      size < kCopied ? PyBytes_FromStringAndSize(text, size) : PyMemoryView_FromMemory(text, size, PyBUF_READ),
      nullptr);
}

bool decode_items(const ipc::Payload& payload, std::size_t first, std::size_t count, PyObject* items) {
  for (std::size_t i = first; i < first + count; ++i) {
    std::vector<BlockRef> blocks;
    for (const auto& block : std::ranges::equal_range(payload.blocks, i, {}, &ipc::Payload::Block::item)) {
      blocks.push_back(block.block);
    }
    const std::uint64_t begin = payload.begin_of(i);
    PyObject* item = decode(payload.bytes.slice(begin, payload.ends[i] - begin), blocks.data(), blocks.size());
    const bool added = item != nullptr && PyList_Append(items, item) == 0;
    Py_XDECREF(item);
    if (!added) return false;
  }
  return true;
}

}  // namespace service_streamer::bindings
