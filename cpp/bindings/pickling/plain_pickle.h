#pragma once

#include <Python.h>

#include <string>
#include <string_view>

// Pickles of plain values, written and read without a pickler: None, bool, int, float, ASCII str, bytes, and lists of these.
// They are pickles like all others (protocol 5), so either end may leave them to pickle; a pickler costs five times as much.

namespace service_streamer::bindings {

// Appends the pickle of `object`; false: it is not plain, and nothing was appended.
bool append_plain(PyObject* object, std::string& pickle);

// What a plain pickle is of, a new reference. nullptr without an exception: it is not plain; with one: no memory.
PyObject* read_plain(std::string_view pickle);

// The ends of the pickle of so many bytes: the text before and after them. Memory is the caller's.
struct BytesFrame {
  explicit BytesFrame(std::size_t size);
  std::string_view before() const { return {head_, head_size_}; }
  static std::string_view after() { return "."; }

 private:
  char head_[11];
  std::size_t head_size_;
};

}  // namespace service_streamer::bindings
