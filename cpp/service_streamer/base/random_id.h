#pragma once

#include <string>

namespace service_streamer {

// Returns 16 random hexadecimal digits, for a name that is unique with near certainty. It does not block.
std::string random_id();

}  // namespace service_streamer
