#pragma once

#include <Python.h>

#include <string>
#include <string_view>

// Pickles of plain values, written and read without a pickler, which is slower: None, bool, int, float, ASCII str,
// bytes, and lists of these. They are ordinary pickles (protocol 5), so either end may use Python's pickle instead.

namespace service_streamer::bindings {

// Appends the pickle of `object`. False: it is not plain, and nothing was appended.
bool append_plain(PyObject* object, std::string& pickle);

// The object of a plain pickle, a new reference. nullptr without an exception: it is not plain; with one: no memory.
PyObject* read_plain(std::string_view pickle);

// The text before and after the bytes in the pickle of a bytes object of this size.
struct BytesFrame {
  explicit BytesFrame(std::size_t size);
  std::string_view before() const { return {head_, head_size_}; }
  static std::string_view after() { return "."; }

 private:
  char head_[11];
  std::size_t head_size_;
};

}  // namespace service_streamer::bindings
