#pragma once

#include <Python.h>

namespace service_streamer::bindings {

// An object that refers to Python objects, and whose last user may be a thread without the GIL.
class DeferredDelete {
 public:
  virtual ~DeferredDelete() = default;  // called with the GIL held

 private:
  friend void leave(DeferredDelete* object) noexcept;
  friend void delete_deferred();
  DeferredDelete* next_ = nullptr;
};

// Has the object deleted by the next thread that calls delete_deferred(), at the latest by the main thread when that
// runs Python code. Any thread; never blocks. After the interpreter has ended the object is leaked.
void leave(DeferredDelete* object) noexcept;

// Deletes all such objects. Needs the GIL; may run Python code.
void delete_deferred();

}  // namespace service_streamer::bindings
