#pragma once

#include <Python.h>

#include <utility>

namespace service_streamer::bindings {

// An interned str, kept until the process ends: the name of an attribute or a module, as a constant of this module. It
// is made when the module is initialised, and not by its first use. Without a GIL, that thread may have to wait until
// the world runs again. A thread that waits for its static variable does not let the world stop, so neither goes on.
class Name {
 public:
  explicit Name(const char* text) noexcept : text_(text), next_(std::exchange(first, this)) {}
  Name(const Name&) = delete;
  Name& operator=(const Name&) = delete;

  operator PyObject*() const { return object_; }  // borrowed

  // False with an exception set.
  static bool make_all() {
    for (Name* each = first; each != nullptr; each = each->next_) {
      if (each->object_ == nullptr) each->object_ = PyUnicode_InternFromString(each->text_);
      if (each->object_ == nullptr) return false;
    }
    return true;
  }

 private:
  static inline constinit Name* first = nullptr;  // of the list of all

  const char* const text_;
  Name* const next_;
  PyObject* object_ = nullptr;
};

}  // namespace service_streamer::bindings
