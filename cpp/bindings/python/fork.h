#pragma once

#include <cstdint>

namespace service_streamer::bindings {

// How many forks lie between this process and the first one. An object made under another number belongs to the parent.
// Its locks may be held by threads that the child does not have, so a child neither uses nor deletes it.
std::uint32_t fork_generation();

// Counts forks from here on. To be called once, before at_fork_in_child(); false with an exception set.
bool watch_forks();

// Has the handler called in every forked child, in the order of these calls. A hook of the C library: it also runs
// where no hook of Python's does. False with an exception set.
bool at_fork_in_child(void (*handler)());

}  // namespace service_streamer::bindings
