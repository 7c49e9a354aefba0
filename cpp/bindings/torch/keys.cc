#include "bindings/torch/keys.h"

namespace service_streamer::bindings {

Keys::Keys(PyObject* key) : key_(Py_NewRef(key)) {}

Keys::~Keys() {
  Py_XDECREF(numbers_);
  Py_DECREF(key_);
}

bool Keys::number(PyObject* items, std::vector<std::uint64_t>& numbers) {
  numbers.resize(static_cast<std::size_t>(PyTuple_GET_SIZE(items)));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (!number_one(PyTuple_GET_ITEM(items, static_cast<Py_ssize_t>(i)), numbers[i])) return false;
  }
  return true;
}

bool Keys::number_one(PyObject* item, std::uint64_t& number) {
  PyObject* key = PyObject_CallOneArg(key_, item);
  if (key == nullptr) return false;
  const bool found = check_hashable(key) && find(key, number);
  Py_DECREF(key);
  return found;
}

bool Keys::check_hashable(PyObject* key) {
  if (PyObject_Hash(key) != -1) return true;
  if (PyErr_ExceptionMatches(PyExc_TypeError)) {
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "key must return something hashable, not %R", key);
  }
  return false;
}

bool Keys::find(PyObject* key, std::uint64_t& number) {
  if (numbers_ == nullptr && (numbers_ = PyDict_New()) == nullptr) return false;
  if (PyDict_GET_SIZE(numbers_) >= kMaxRemembered) PyDict_Clear(numbers_);
  PyObject* known = PyDict_GetItemWithError(numbers_, key);
  if (known != nullptr) {
    number = PyLong_AsUnsignedLongLong(known);
    return true;
  }
  if (PyErr_Occurred() != nullptr) return false;
  PyObject* fresh = PyLong_FromUnsignedLongLong(++next_);
  if (fresh == nullptr) return false;
  // Comparing keys may run Python code and let other threads run. One of them may have added the same key, so do not
  // overwrite.
  known = PyDict_SetDefault(numbers_, key, fresh);
  if (known != nullptr) number = PyLong_AsUnsignedLongLong(known);
  Py_DECREF(fresh);
  return known != nullptr;
}

}  // namespace service_streamer::bindings
