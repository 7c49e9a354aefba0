#pragma once

#include <Python.h>

namespace service_streamer::bindings {

// Something that refers to objects of Python, and that a thread without the GIL may have been the last to need.
class Leftover {
 public:
  virtual ~Leftover() = default;  // with the GIL

 private:
  friend void leave(Leftover* object) noexcept;
  friend void clear_leftovers();
  Leftover* next_ = nullptr;
};

// Has it deleted by the next thread that comes by with the GIL, at the latest by the main thread when that runs Python code. Any
// thread, never blocks. Once the interpreter has ended it is leaked.
void leave(Leftover* object) noexcept;

// Deletes what was left; with the GIL. May run Python code.
void clear_leftovers();

}  // namespace service_streamer::bindings
