#include "bindings/pickling/plain_pickle.h"

#include <bit>
#include <cstdint>
#include <cstring>

#include "bindings/pickling/pickle_opcodes.h"
#include "bindings/python/free_threading.h"

namespace service_streamer::bindings {
namespace {

using namespace opcode;  // NOLINT(google-build-using-namespace)

// Longer values are left to a pickler: it writes one that comes twice only once, and its overhead does not matter.
constexpr Py_ssize_t kLongest = 4096;

void append_text(char short_opcode, char opcode, const void* text, Py_ssize_t size, std::string& pickle) {
  if (size < 256) {
    append(short_opcode, static_cast<std::uint8_t>(size), pickle);
  } else {
    append(opcode, static_cast<std::uint32_t>(size), pickle);
  }
  pickle.append(static_cast<const char*>(text), static_cast<std::size_t>(size));
}

bool append_int(PyObject* object, std::string& pickle) {
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (overflow != 0) return false;
  if (number >= 0 && number < 256) {
    append(kByte, static_cast<std::uint8_t>(number), pickle);
  } else if (number >= INT32_MIN && number <= INT32_MAX) {
    append(kInt, static_cast<std::int32_t>(number), pickle);
  } else {
    pickle += kLong;
    append(sizeof number, number, pickle);
  }
  return true;
}

bool append_value(PyObject* object, std::string& pickle) {
  if (PyUnicode_CheckExact(object)) {
    if (!PyUnicode_IS_COMPACT_ASCII(object) || PyUnicode_GET_LENGTH(object) > kLongest) return false;
    append_text(kShortStr, kStr, PyUnicode_1BYTE_DATA(object), PyUnicode_GET_LENGTH(object), pickle);
  } else if (PyLong_CheckExact(object)) {
    return append_int(object, pickle);
  } else if (PyFloat_CheckExact(object)) {
    append(kFloat, __builtin_bswap64(std::bit_cast<std::uint64_t>(PyFloat_AS_DOUBLE(object))), pickle);
  } else if (PyBytes_CheckExact(object)) {
    if (PyBytes_GET_SIZE(object) > kLongest) return false;
    append_text(kShortBytes, kBytes, PyBytes_AS_STRING(object), PyBytes_GET_SIZE(object), pickle);
  } else if (object == Py_None) {
    pickle += kNone;
  } else if (PyBool_Check(object)) {
    pickle += object == Py_True ? kTrue : kFalse;
  } else {
    return false;
  }
  return true;
}

bool append_list(PyObject* list, std::string& pickle) {
  const Locked lock(list);
  pickle += kMark;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
    if (!append_value(PyList_GET_ITEM(list, i), pickle)) return false;
  }
  pickle += kList;
  return true;
}

// Reads from front to back, never beyond the end.
class Reader {
 public:
  explicit Reader(std::string_view text) : at_(text.begin()), end_(text.end()) {}

  bool empty() const { return at_ == end_; }
  char next() const { return empty() ? '\0' : *at_; }

  template <typename Number>
  bool read(Number& number) {
    if (left() < sizeof number) return false;
    std::memcpy(&number, at_, sizeof number);
    at_ += sizeof number;
    return true;
  }

  struct Text {
    const char* data = nullptr;  // nullptr: fewer bytes are left
    std::size_t size = 0;
  };
  template <typename Size>
  Text read_text() {
    Size size;
    if (!read(size) || size > left()) return {};
    const Text text{.data = at_, .size = size};
    at_ += size;
    return text;
  }

 private:
  std::size_t left() const { return static_cast<std::size_t>(end_ - at_); }

  const char* at_;
  const char* end_;
};

PyObject* make_bytes(Reader::Text text) {
  return text.data != nullptr ? PyBytes_FromStringAndSize(text.data, static_cast<Py_ssize_t>(text.size)) : nullptr;
}

// Other texts of pickle are UTF-8 with surrogates, which only pickle reads.
PyObject* make_str(Reader::Text text) {
  if (text.data == nullptr) return nullptr;
  PyObject* str = PyUnicode_New(static_cast<Py_ssize_t>(text.size), 127);
  if (str == nullptr) return nullptr;
  auto* data = reinterpret_cast<unsigned char*>(PyUnicode_1BYTE_DATA(str));
  unsigned char all = 0;
  for (std::size_t i = 0; i < text.size; ++i) all |= data[i] = static_cast<unsigned char>(text.data[i]);
  if (all > 127) Py_CLEAR(str);
  return str;
}

PyObject* read_value(Reader& reader) {
  char opcode;
  if (!reader.read(opcode)) return nullptr;
  switch (opcode) {
    case kNone:
      return Py_NewRef(Py_None);
    case kTrue:
      return Py_NewRef(Py_True);
    case kFalse:
      return Py_NewRef(Py_False);
    case kByte: {
      std::uint8_t number;
      return reader.read(number) ? PyLong_FromLong(number) : nullptr;
    }
    case kInt: {
      std::int32_t number;
      return reader.read(number) ? PyLong_FromLong(number) : nullptr;
    }
    case kLong: {
      std::uint8_t size;
      long long number;
      return reader.read(size) && size == sizeof number && reader.read(number) ? PyLong_FromLongLong(number) : nullptr;
    }
    case kFloat: {
      std::uint64_t bits;
      return reader.read(bits) ? PyFloat_FromDouble(std::bit_cast<double>(__builtin_bswap64(bits))) : nullptr;
    }
    case kShortStr:
      return make_str(reader.read_text<std::uint8_t>());
    case kStr:
      return make_str(reader.read_text<std::uint32_t>());
    case kShortBytes:
      return make_bytes(reader.read_text<std::uint8_t>());
    case kBytes:
      return make_bytes(reader.read_text<std::uint32_t>());
    case kLongBytes:
      return make_bytes(reader.read_text<std::uint64_t>());
    default:
      return nullptr;
  }
}

PyObject* read_list(Reader& reader) {
  PyObject* list = PyList_New(0);
  while (list != nullptr && reader.next() != kList) {
    PyObject* value = read_value(reader);
    if (value == nullptr || PyList_Append(list, value) < 0) Py_CLEAR(list);
    Py_XDECREF(value);
  }
  char opcode;
  reader.read(opcode);
  return list;
}

}  // namespace

bool append_plain(PyObject* object, std::string& pickle) {
  const std::size_t before = pickle.size();
  pickle += kProto;
  pickle += kVersion;
  if (PyList_CheckExact(object) ? append_list(object, pickle) : append_value(object, pickle)) {
    pickle += kStop;
    return true;
  }
  pickle.resize(before);
  return false;
}

PyObject* read_plain(std::string_view pickle) {
  Reader reader(pickle);
  char opcode;
  std::uint8_t version;
  if (!reader.read(opcode) || opcode != kProto || !reader.read(version)) return nullptr;
  PyObject* object;
  if (reader.next() == kMark) {
    reader.read(opcode);
    object = read_list(reader);
  } else {
    object = read_value(reader);
  }
  if (object != nullptr && (!reader.read(opcode) || opcode != kStop || !reader.empty())) Py_CLEAR(object);
  return object;
}

BytesFrame::BytesFrame(std::size_t size) : head_{kProto, kVersion} {
  if (size <= UINT32_MAX) {
    head_[2] = kBytes;
    const auto length = static_cast<std::uint32_t>(size);
    std::memcpy(head_ + 3, &length, sizeof length);
    head_size_ = 3 + sizeof length;
  } else {
    head_[2] = kLongBytes;
    const auto length = static_cast<std::uint64_t>(size);
    std::memcpy(head_ + 3, &length, sizeof length);
    head_size_ = 3 + sizeof length;
  }
}

}  // namespace service_streamer::bindings
