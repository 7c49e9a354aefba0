#include "service_streamer/torch/errors.h"

#include <algorithm>
#include <array>
#include <new>
#include <string>
#include <string_view>

namespace service_streamer::torch_backend {
namespace {

constexpr std::size_t kLongest = 2000;

std::string_view line_at(std::string_view text, std::size_t begin) {
  return text.substr(begin, text.find('\n', begin) - begin);
}

// The last line of a TorchScript error says what happened. The line above the tildes is the source code.
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

// Finds the failed operator of an AOTInductor package in the backtrace: the function that calls it, or a compiled
// kernel with its name. Empty if there is none.
std::string_view operator_in(std::string_view text) {
  constexpr std::string_view kFrame = "\nframe #";
  for (std::size_t at = text.find(kFrame); at != std::string_view::npos; at = text.find(kFrame, at + 1)) {
    const std::string_view line = line_at(text, at + 1);
    const std::string_view function = line.substr(std::min(line.find(": ") + 2, line.size()));
    if (function.starts_with("aoti_torch_") || function.starts_with("cpp_fused_")) {
      return function.substr(0, function.find(' '));
    }
  }
  return {};
}

std::string message_of(const std::exception& error) {
  const std::string_view text = error.what();
  if (text.find("Traceback of TorchScript") != std::string_view::npos) return script_message(text).substr(0, kLongest);
  const std::string message(line_at(text, 0).substr(0, kLongest));
  const std::string_view where = operator_in(text);
  return where.empty() ? message : message + " (in: " + std::string(where) + ")";
}

}  // namespace

bool is_about_memory(std::string_view text) {
  constexpr std::array<std::string_view, 4> kWords{"not enough memory", "can't allocate memory", "out of memory",
                                                   "STATUS_ALLOC_FAILED"};
  return std::any_of(kWords.begin(), kWords.end(),
                     [&](std::string_view words) { return text.find(words) != std::string_view::npos; });
}

native::RunError run_error_of(const std::exception& error) {
  if (const auto* own = dynamic_cast<const native::RunError*>(&error)) return *own;
  const bool memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr || is_about_memory(error.what());
  return {memory ? native::Fault::kMemory : native::Fault::kModel, message_of(error)};
}

}  // namespace service_streamer::torch_backend
