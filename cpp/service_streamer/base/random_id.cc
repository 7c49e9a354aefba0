#include "service_streamer/base/random_id.h"

#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>

#include "service_streamer/base/clock.h"
#include "service_streamer/base/system.h"

namespace service_streamer {

std::string random_id() {
  std::uint64_t number = 0;
  if (!fill_random(number)) {  // soon after the machine has started
    number = static_cast<std::uint64_t>(Clock::now().time_since_epoch().count()) ^
             (static_cast<std::uint64_t>(getpid()) << 48);
  }
  std::array<char, 17> digits;
  std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(number));
  return digits.data();
}

}  // namespace service_streamer
