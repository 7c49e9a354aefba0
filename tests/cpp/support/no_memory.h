#pragma once

// Allocations that fail when a test wants them to. Replaces operator new of the whole executable, so one file of it has this.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <new>

namespace service_streamer::support {

inline constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();
inline std::atomic<std::size_t> refused_from{kUnlimited};
inline std::atomic<std::size_t> refused_to{kUnlimited};
inline std::atomic<int> refusals{0};

// For the life of it this process has no memory for anything of such a size.
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

  // How often that was felt.
  static int felt() { return refusals; }
};

}  // namespace service_streamer::support

// Not inlined, or GCC takes the halves of a pair for mismatched.
// NOLINTBEGIN(cppcoreguidelines-no-malloc,misc-definitions-in-headers)
[[gnu::noinline]] void* operator new(std::size_t size) {
  namespace support = service_streamer::support;
  const bool refused = size >= support::refused_from && size < support::refused_to;
  if (refused) ++support::refusals;
  void* memory = refused ? nullptr : std::malloc(std::max<std::size_t>(size, 1));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}

[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
// NOLINTEND(cppcoreguidelines-no-malloc,misc-definitions-in-headers)
