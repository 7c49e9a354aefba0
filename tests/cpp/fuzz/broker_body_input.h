#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace service_streamer::ipc::fuzz {

// Parses the input as the body of a request, as the body of a result whose number of items is the first byte, and as a
// reply to a client. Accepted input must be written as the same bytes again. Returns how many of the three were
// accepted.
std::size_t read_as_bodies(std::span<const std::uint8_t> input);

}  // namespace service_streamer::ipc::fuzz
