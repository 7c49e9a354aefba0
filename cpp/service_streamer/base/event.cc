#include <unistd.h>

#include <array>

#include "service_streamer/base/system.h"

namespace service_streamer {

void Event::set() const {
  const std::uint64_t one = 1;  // what an eventfd takes
  // The only possible failure is that the event is full, and then it is readable anyway.
  [[maybe_unused]] const ssize_t written = write(writer, &one, sizeof one);
}

void Event::clear() const {
  std::array<std::uint64_t, 8> received;  // an eventfd gives one number, a pipe all that were written
  [[maybe_unused]] const ssize_t size = read(reader, received.data(), sizeof received);
}

void Event::close() const {
  ::close(reader);
  if (writer != reader) ::close(writer);
}

}  // namespace service_streamer
