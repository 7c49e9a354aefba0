#include "service_streamer/torch/errors.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <new>
#include <string>
#include <string_view>

#if __has_include(<torch/csrc/shim_exception_state.h>)
#include <torch/csrc/shim_exception_state.h>
#define SERVICE_STREAMER_SHIM_EXCEPTIONS 1
#endif

namespace service_streamer::torch_backend {
namespace {

constexpr std::size_t kLongest = 2000;

std::string_view line_at(std::string_view text, std::size_t begin) {
  return text.substr(begin, text.find('\n', begin) - begin);
}

// TorchScript's last line says what happened; the one with the tildes below it shows where.
std::string script_message(std::string_view text) {
  const std::size_t last = text.find("RuntimeError: ");
  std::string message(last != std::string_view::npos ? line_at(text, last + std::string_view("RuntimeError: ").size())
                                                     : line_at(text, 0));
  const std::size_t here = text.find("~ <--- HERE");
  if (here == std::string_view::npos) return message;
  const std::size_t end = text.rfind('\n', here);
  if (end == std::string_view::npos || end == 0) return message;
  const std::size_t begin = text.rfind('\n', end - 1);
  std::string_view source = line_at(text, begin == std::string_view::npos ? 0 : begin + 1);
  source.remove_prefix(std::min(source.find_first_not_of(' '), source.size()));
  return message + " (in: " + std::string(source) + ")";
}

// What the operator said that the calling thread called last by the C interface, and that failed; older versions do not keep it.
std::string operator_message() {
#ifdef SERVICE_STREAMER_SHIM_EXCEPTIONS
  return ::torch::csrc::shim::details::get_torch_exception_what_without_backtrace();
#else
  return {};
#endif
}

// A package calls operators by a C interface. Its own message only names the one that failed, with the text of the whole call.
std::string package_message(std::string_view text) {
  const std::size_t begin = text.find("aoti_torch_");
  const std::string said(line_at(operator_message(), 0));
  if (begin == std::string_view::npos || said.empty()) return std::string(line_at(text, 0));
  return said + " (in: " + std::string(text.substr(begin, text.find('(', begin) - begin)) + ")";
}

std::string message_of(const std::exception& error) {
  const auto* own = dynamic_cast<const c10::Error*>(&error);
  const std::string text = own != nullptr ? own->what_without_backtrace() : error.what();
  std::string message(line_at(text, 0));
  if (text.find("Traceback of TorchScript") != std::string::npos) {
    message = script_message(text);
  } else if (text.find(" API call failed at ") != std::string::npos) {
    message = package_message(text);
  }
  return message.substr(0, kLongest);
}

}  // namespace

bool is_about_memory(std::string_view text) {
  constexpr std::array<std::string_view, 3> kWords{"not enough memory", "can't allocate memory", "out of memory"};
  return std::any_of(kWords.begin(), kWords.end(),
                     [&](std::string_view words) { return text.find(words) != std::string_view::npos; });
}

native::RunError run_error_of(const std::exception& error) {
  if (const auto* own = dynamic_cast<const native::RunError*>(&error)) return *own;
  const std::string message = message_of(error);
  const bool memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
                      dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr || is_about_memory(error.what()) ||
                      is_about_memory(message);
  return {memory ? native::Fault::kMemory : native::Fault::kModel, message};
}

}  // namespace service_streamer::torch_backend
