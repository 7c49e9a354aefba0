#pragma once

#include <exception>

#include "service_streamer/native/model.h"

namespace service_streamer::torch_backend {

// What the library threw, for callers: which operator, and why, without the backtrace of its own code; or that there was too
// little memory.
native::RunError run_error_of(const std::exception& error);

template <typename Function>
void with_run_errors(Function function) {
  try {
    function();
  } catch (const std::exception& error) {
    throw run_error_of(error);
  }
}

}  // namespace service_streamer::torch_backend
