#pragma once

#include <exception>

namespace service_streamer::bindings {

// Sets an exception of torch as a Python exception: MemoryError if there was too little memory, else RuntimeError with
// a message of one line. The caller holds the GIL.
void set_run_error(const std::exception& error);

}  // namespace service_streamer::bindings
