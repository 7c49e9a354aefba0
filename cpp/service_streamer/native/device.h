#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "service_streamer/native/collate.h"
#include "service_streamer/native/tensor.h"

namespace service_streamer::native {

// A device that computes beside the host, as one worker has it: with three streams of its own. Whatever they are given is done later,
// each in its order; only synchronize() waits for it. By one thread at a time. Methods throw what the device reports, which may be
// of something that it was given before.
class Device {
 public:
  enum class Stream : std::uint8_t { kCopyIn, kCompute, kCopyOut };

  virtual ~Device() = default;

  // Memory of the host that the device reads and writes by itself (pinned), and its own; freed with the last reference, which must
  // not go while a stream still has work on it. Throw std::bad_alloc, or what the library throws instead.
  virtual std::shared_ptr<std::byte> allocate_host(std::size_t bytes) = 0;
  virtual std::shared_ptr<std::byte> allocate(std::size_t bytes) = 0;

  virtual std::unique_ptr<Event> make_event() = 0;

  // Moves an event to the end of what a stream has been given.
  virtual void record(Event& event, Stream stream) = 0;

  // What the stream is given from now on is done after the event.
  virtual void wait(Stream stream, const Event& event) = 0;

  // Blocks until all before the event is done.
  virtual void synchronize(const Event& event) = 0;

  // Work for kCopyIn: from pinned memory.
  virtual void copy_in(std::byte* to, const std::byte* from, std::size_t bytes) = 0;

  // The same for rows that lie on the device: puts them side by side there, as the Collator does it on the host. Their views may go
  // before it is done, their memory may not.
  virtual void gather(std::span<const TensorView> rows, const Collator::Tensor& to, PadSide side,
                      const Number& number) = 0;

  // Work for kCopyOut: to pinned memory.
  virtual void copy_out(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
};

}  // namespace service_streamer::native
