#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "bindings/python/errors.h"
#include "service_streamer/base/bytes.h"
#include "service_streamer/base/clock.h"
#include "service_streamer/wire/broker_body.h"

// Conversions for BrokerEgress and BrokerIngress: numbers, times and bodies. With the GIL held.

namespace service_streamer::bindings {

// The GIL is released for longer copies.
constexpr std::size_t kLongCopy = std::size_t{1} << 20;

// Calls a function that copies so many bytes.
template <typename Function>
CaughtError attempt_copying(std::size_t bytes, Function function) {
  return bytes < kLongCopy ? attempt(function) : attempt_without_gil(function);
}

// The numbers of requests in a sequence of ints; false with an exception set.
bool ids_from(PyObject* sequence, std::vector<std::uint64_t>& ids);

// The number of a request; false with an exception set.
bool id_from(PyObject* number, std::uint64_t& id);

// A time of time.monotonic(); None: TimePoint::max(). False with an exception set that names the value.
bool time_from(PyObject* seconds, TimePoint& time);

inline std::string_view text_of(PyObject* bytes) {
  return {PyBytes_AS_STRING(bytes), static_cast<std::size_t>(PyBytes_GET_SIZE(bytes))};
}

inline PyObject* bytes_of(std::string_view text) {
  return PyBytes_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
}

// Appends a new reference, which may be nullptr with an exception set; false then.
inline bool append(PyObject* list, PyObject* element) {
  const bool appended = element != nullptr && PyList_Append(list, element) == 0;
  Py_XDECREF(element);
  return appended;
}

// A copy of a bytes object without its first `skip` bytes.
inline ipc::Bytes copy_of(PyObject* bytes, std::size_t skip = 0) {
  return ipc::Bytes::copy_of(text_of(bytes).substr(skip));
}

// (id, begin, items, deadline, priority, body); nullptr with an exception set. A long body is copied without the GIL,
// so the chunk must be on the heap.
PyObject* chunk_tuple(const ipc::Chunk& chunk);

PyObject* id_list(const std::vector<std::uint64_t>& ids);

// A new bytes object of that size that `write(char*)` fills; nullptr with MemoryError set.
template <typename Write>
PyObject* make_body(std::size_t size, Write write) {
  PyObject* body = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size));
  if (body == nullptr) return nullptr;
  char* to = PyBytes_AS_STRING(body);
  if (attempt_copying(size, [&] { write(to); }).raise()) Py_CLEAR(body);
  return body;
}

}  // namespace service_streamer::bindings
