#pragma once

#include <Python.h>

#include <cstdint>
#include <vector>

namespace service_streamer::bindings {

// Maps the keys of items to numbers, which threads without the GIL can compare. Different keys never have the same
// number. Equal keys have the same number as long as the key is remembered. Requires the GIL.
class Keys {
 public:
  // `key` is a callable that returns the key of an item. Borrowed reference.
  explicit Keys(PyObject* key);
  ~Keys();
  Keys(const Keys&) = delete;
  Keys& operator=(const Keys&) = delete;

  // Computes the numbers for a tuple of items. False with an exception set: the one that the callable raised, or a
  // TypeError if the key is not hashable.
  bool number(PyObject* items, std::vector<std::uint64_t>& numbers);

 private:
  bool number_one(PyObject* item, std::uint64_t& number);
  static bool check_hashable(PyObject* key);
  bool find(PyObject* key, std::uint64_t& number);

  // When there are more keys, all are forgotten. Items with the same key from before and after that do not share a
  // batch.
  static constexpr Py_ssize_t kMaxRemembered = 4096;

  PyObject* const key_;
  PyObject* numbers_ = nullptr;  // a dict
  std::uint64_t next_ = 0;
};

}  // namespace service_streamer::bindings
