#pragma once

#include <exception>
#include <string_view>

#include "service_streamer/native/model.h"

namespace service_streamer::torch_backend {

// Converts an exception of torch into a RunError. The message says which operator failed and why, without the C++
// backtrace. Any exception about too little memory gets Fault::kMemory.
native::RunError run_error_of(const std::exception& error);

// True if a message of torch or of the system says that there is not enough memory.
bool is_about_memory(std::string_view text);

// Calls the function and converts what it throws.
template <typename Function>
void with_run_errors(Function function) {
  try {
    function();
  } catch (const std::exception& error) {
    throw run_error_of(error);
  }
}

}  // namespace service_streamer::torch_backend
