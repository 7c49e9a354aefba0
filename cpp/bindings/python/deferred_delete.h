#pragma once

#include <Python.h>

namespace service_streamer::bindings {

// Something that refers to objects of Python, and that a thread without the GIL may have been the last to need.
class DeferredDelete {
 public:
  virtual ~DeferredDelete() = default;  // with the GIL

 private:
  friend void leave(DeferredDelete* object) noexcept;
  friend void delete_deferred();
  DeferredDelete* next_ = nullptr;
};

// Has it deleted by the next thread that comes by with the GIL, at the latest by the main thread when that runs Python code. Any
// thread, never blocks. Once the interpreter has ended it is leaked.
void leave(DeferredDelete* object) noexcept;

// Deletes what was left; with the GIL. May run Python code.
void delete_deferred();

}  // namespace service_streamer::bindings
