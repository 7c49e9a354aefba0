#pragma once

#include <string>

namespace service_streamer {

// Returns 16 random hexadecimal digits, which no other call returns on any machine. It does not block.
std::string random_id();

}  // namespace service_streamer
