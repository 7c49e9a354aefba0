#pragma once

#include <cstdint>

namespace service_streamer::bindings {

// How many forks lie between this process and the first one: what was made under another number is the parent's. Its locks
// may be held by threads that the child does not have, so it is left alone, and leaked.
std::uint32_t fork_generation();

// To be called once. Hooks of the C library: they also run where nobody registered any of Python's.
bool watch_forks();

}  // namespace service_streamer::bindings
