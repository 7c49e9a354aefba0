// Replaces operator new of the executable that it is linked into.

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>

#include "support/no_memory.h"

// Not inlined: GCC would warn about mismatched new and delete.
// NOLINTBEGIN(cppcoreguidelines-no-malloc)
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
// NOLINTEND(cppcoreguidelines-no-malloc)
