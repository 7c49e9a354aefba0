#pragma once

#include <Python.h>

#include <cstddef>
#include <string>

// Pickles of numpy's arrays, written without a pickler: numpy's own way costs five times as much, for it asks Python for the type
// of the numbers and for a function to put all together. These are a call, numpy.ndarray(shape, type, numbers).

namespace service_streamer::bindings {

// An array of exactly numpy's class, of plain numbers in C's order; whatever else there is numpy pickles itself.
class PlainArray {
 public:
  // Takes hold of the numbers, until release(): not in a destructor, for this thread may end while it copies them without the GIL.
  // False, without an exception: it is not such an array.
  bool hold(PyObject* object);
  void release() { PyBuffer_Release(&view_); }

  const char* numbers() const { return static_cast<const char*>(view_.buf); }
  std::size_t size() const { return static_cast<std::size_t>(view_.len); }

  // The three parts of a pickle. Between them are the numbers, or, where they travel as a buffer of protocol 5, nothing.
  void append_head(std::string& pickle) const;
  void append_numbers_follow(std::string& pickle) const;
  void append_numbers_are_a_buffer(std::string& pickle) const;
  static void append_tail(std::string& pickle);
  static constexpr std::size_t kMostAround = 1024;  // bytes that all three can have

 private:
  bool has_plain_type(PyObject* object);

  Py_buffer view_{};
  char type_[8] = {};  // as in numpy.dtype.str
};

// Whether it is a list, tuple or dict with arrays in it, looking no deeper: `_pickle.dumps` has the same way for them.
bool contains_arrays(PyObject* object);

}  // namespace service_streamer::bindings
