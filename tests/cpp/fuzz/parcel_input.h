#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace service_streamer::ipc::fuzz {

// Reads the input as the body of a request, and of a result of as many items as its first byte tells. What is accepted must be
// written as the same bytes again. Returns how many of the two were accepted.
std::size_t read_as_parcels(std::span<const std::uint8_t> input);

}  // namespace service_streamer::ipc::fuzz
