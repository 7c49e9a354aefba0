#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace service_streamer::ipc::fuzz {

// Reads the input as the body of a request, of a result of as many items as its first byte tells, and as a reply to a
// client. What is accepted must be written as the same bytes again. Returns how many of the three were accepted.
std::size_t read_as_bodies(std::span<const std::uint8_t> input);

}  // namespace service_streamer::ipc::fuzz
