#include "bindings/pickling/array_pickle.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "bindings/pickling/pickle_opcodes.h"
#include "bindings/python/free_threading.h"
#include "bindings/python/libraries.h"
#include "bindings/python/name.h"

namespace service_streamer::bindings {
namespace {

bool is_of_numpy(PyObject* object) {
  return Py_TYPE(object) == numpy_array_class();
}

Name dtype_name{"dtype"};
Name metadata_name{"metadata"};

// Whether the dtype has metadata of users, which only numpy's own pickles keep.
bool has_metadata(PyObject* array) {
  PyObject* type = PyObject_GetAttr(array, dtype_name);
  PyObject* metadata = type != nullptr ? PyObject_GetAttr(type, metadata_name) : nullptr;
  const bool has = metadata != Py_None;
  Py_XDECREF(metadata);
  Py_XDECREF(type);
  PyErr_Clear();
  return has;
}

// numpy's letter for a native type of the struct module; '\0': not a plain number.
char kind_of(std::string_view format) {
  const auto is_one_of = [format](std::string_view letters) {
    return format.size() == 1 && letters.find(format[0]) != std::string_view::npos;
  };
  if (is_one_of("bhilq")) return 'i';
  if (is_one_of("BHILQ")) return 'u';
  if (is_one_of("efdg")) return 'f';
  if (format == "?") return 'b';
  if (format == "Zf" || format == "Zd" || format == "Zg") return 'c';
  return '\0';
}

void append_str(std::string_view text, std::string& pickle) {
  opcode::append(opcode::kShortStr, static_cast<std::uint8_t>(text.size()), pickle);
  pickle += text;
}

}  // namespace

bool PlainArray::hold(PyObject* object) {
  if (!is_of_numpy(object)) return false;
  if (PyObject_GetBuffer(object, &view_, PyBUF_STRIDES | PyBUF_FORMAT) != 0) {
    PyErr_Clear();  // some types, such as dates, have no buffer
    return false;
  }
  if (PyBuffer_IsContiguous(&view_, 'C') && has_plain_type(object)) return true;
  release();
  return false;
}

bool PlainArray::has_plain_type(PyObject* object) {
  const char kind = kind_of(view_.format);
  if (kind == '\0' || view_.itemsize > 32 || has_metadata(object)) return false;
  char* end = type_;
  *end++ = view_.itemsize == 1 ? '|' : '<';
  *end++ = kind;
  if (view_.itemsize >= 10) *end++ = static_cast<char>('0' + view_.itemsize / 10);
  *end = static_cast<char>('0' + view_.itemsize % 10);
  return true;
}

void PlainArray::append_head(std::string& pickle) const {
  pickle += opcode::kProto;
  pickle += opcode::kVersion;
  append_str("numpy", pickle);
  append_str("ndarray", pickle);
  pickle += opcode::kGlobal;
  pickle += opcode::kMark;
  for (int i = 0; i < view_.ndim; ++i) {
    const auto length = static_cast<std::int64_t>(view_.shape[i]);
    pickle += opcode::kLong;
    opcode::append(sizeof length, length, pickle);
  }
  pickle += opcode::kTuple;
  append_str(type_, pickle);
}

void PlainArray::append_numbers_follow(std::string& pickle) const {
  const auto length = static_cast<std::uint64_t>(view_.len);
  opcode::append(view_.readonly ? opcode::kLongBytes : opcode::kByteArray, length, pickle);
}

void PlainArray::append_numbers_are_a_buffer(std::string& pickle) const {
  pickle += opcode::kBuffer;
  if (view_.readonly) pickle += opcode::kReadOnly;
}

void PlainArray::append_tail(std::string& pickle) {
  pickle += opcode::kTuple3;
  pickle += opcode::kReduce;
  pickle += opcode::kStop;
}

bool contains_arrays(PyObject* object) {
  if (numpy_array_class() == nullptr) return false;
  const Locked lock(object);
  if (PyList_CheckExact(object) || PyTuple_CheckExact(object)) {
    PyObject** const items = PySequence_Fast_ITEMS(object);
    return std::any_of(items, items + PySequence_Fast_GET_SIZE(object), is_of_numpy);
  }
  if (!PyDict_CheckExact(object)) return false;
  Py_ssize_t place = 0;
  PyObject* value;
  while (PyDict_Next(object, &place, nullptr, &value)) {
    if (is_of_numpy(value)) return true;
  }
  return false;
}

}  // namespace service_streamer::bindings
