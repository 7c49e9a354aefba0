#pragma once

#include <vector>

#include "service_streamer/waiting/mailbox.h"

namespace service_streamer::support {

inline std::vector<void*> drained(Mailbox& mailbox) {
  std::vector<void*> values;
  Mailbox::Messages messages = mailbox.drain();
  while (void* value = messages.pop()) values.push_back(value);
  return values;
}

}  // namespace service_streamer::support
