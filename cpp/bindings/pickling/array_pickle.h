#pragma once

#include <Python.h>

#include <cstddef>
#include <string>

// Pickles of numpy arrays, written without a pickler, which is slower. They are a call: numpy.ndarray(shape, type,
// numbers).

namespace service_streamer::bindings {

// An array of exactly the class numpy.ndarray, with plain numbers in C order. Other arrays are left to numpy's own
// pickles.
class PlainArray {
 public:
  // Gets the buffer of the array, until release(). There is no destructor, because the thread may be ended while it
  // copies the numbers without the GIL. False without an exception: it is not such an array.
  bool hold(PyObject* object);
  void release() { PyBuffer_Release(&view_); }

  const char* numbers() const { return static_cast<const char*>(view_.buf); }
  std::size_t size() const { return static_cast<std::size_t>(view_.len); }

  // The parts of a pickle: head; then numbers_follow and the numbers, or numbers_are_a_buffer (of protocol 5); then
  // tail.
  void append_head(std::string& pickle) const;
  void append_numbers_follow(std::string& pickle) const;
  void append_numbers_are_a_buffer(std::string& pickle) const;
  static void append_tail(std::string& pickle);
  static constexpr std::size_t kMostAround = 1024;  // bytes of all parts but the numbers, at most

 private:
  bool has_plain_type(PyObject* object);

  Py_buffer view_{};
  char type_[8] = {};  // as in numpy.dtype.str
};

// Whether it is a list, tuple or dict with arrays directly in it: `pickling.dumps` makes buffers of them.
bool contains_arrays(PyObject* object);

}  // namespace service_streamer::bindings
