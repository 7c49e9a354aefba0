#pragma once

#include <Python.h>

#include <cstdint>
#include <vector>

namespace service_streamer::bindings {

// Numbers for the keys of items, which threads without the GIL can compare: equal keys have equal numbers, as long as they are
// remembered, and different keys never have. With the GIL.
class Keys {
 public:
  // `key`: a function of an item, borrowed.
  explicit Keys(PyObject* key);
  ~Keys();
  Keys(const Keys&) = delete;
  Keys& operator=(const Keys&) = delete;

  // Those of a tuple of items. False with an exception set: what the function raised, or a TypeError where its answer is unhashable.
  bool number(PyObject* items, std::vector<std::uint64_t>& numbers);

 private:
  bool number_one(PyObject* item, std::uint64_t& number);
  static bool check_hashable(PyObject* key);
  bool find(PyObject* key, std::uint64_t& number);

  // Beyond so many all are forgotten: items of one key that were read before and after that are run apart, no more.
  static constexpr Py_ssize_t kMostRemembered = 4096;

  PyObject* const key_;
  PyObject* numbers_ = nullptr;  // a dict
  std::uint64_t next_ = 0;
};

}  // namespace service_streamer::bindings
