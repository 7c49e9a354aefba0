#pragma once

#include <exception>
#include <string_view>

#include "service_streamer/native/model.h"

namespace service_streamer::torch_backend {

// What the library threw, for callers: which operator, and why, without the backtrace of its own code; or that there was too
// little memory.
native::RunError run_error_of(const std::exception& error);

// Whether it is the message of torch, or of the system, for too little memory.
bool is_about_memory(std::string_view text);

template <typename Function>
void with_run_errors(Function function) {
  try {
    function();
  } catch (const std::exception& error) {
    throw run_error_of(error);
  }
}

}  // namespace service_streamer::torch_backend
