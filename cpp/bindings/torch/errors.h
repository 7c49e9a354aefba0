#pragma once

#include <exception>

namespace service_streamer::bindings {

// Sets what the library threw as an exception of Python: a MemoryError, or a RuntimeError with one line. With the GIL.
void set_run_error(const std::exception& error);

}  // namespace service_streamer::bindings
