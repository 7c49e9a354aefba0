#pragma once

// Allocations that fail when a test asks for it. Only for executables with no_memory/operator_new.cc.

#include <atomic>
#include <cstddef>
#include <limits>

namespace service_streamer::support {

inline constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();
inline std::atomic<std::size_t> refused_from{kUnlimited};
inline std::atomic<std::size_t> refused_to{kUnlimited};
inline std::atomic<int> refusals{0};

// While it exists, allocations of such a size fail.
class NoMemoryFor {
 public:
  explicit NoMemoryFor(std::size_t from, std::size_t to = kUnlimited) {
    refusals = 0;
    refused_to = to;
    refused_from = from;
  }
  ~NoMemoryFor() { refused_from = kUnlimited; }
  NoMemoryFor(const NoMemoryFor&) = delete;
  NoMemoryFor& operator=(const NoMemoryFor&) = delete;

  // The number of failed allocations.
  static int felt() { return refusals; }
};

}  // namespace service_streamer::support
