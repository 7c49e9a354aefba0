#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "service_streamer/native/collate.h"
#include "service_streamer/native/tensor.h"

namespace service_streamer::native {

// A device that computes asynchronously, as one worker uses it: with three streams of its own. The methods only enqueue
// work. Each stream executes its work in order. Only synchronize() and the allocations may block.
//
// Used by one thread at a time. Methods throw what the device reports, which may concern work that was enqueued
// earlier.
class Device {
 public:
  enum class Stream : std::uint8_t { kCopyIn, kCompute, kCopyOut };

  virtual ~Device() = default;

  // Pinned host memory, which the device can read and write by itself. The last reference frees it, and must not be
  // dropped while a stream has work on the memory. Throws std::bad_alloc, or what the library throws instead.
  virtual std::shared_ptr<std::byte> allocate_host(std::size_t bytes) = 0;

  // Memory of the device, under the same rules.
  virtual std::shared_ptr<std::byte> allocate(std::size_t bytes) = 0;

  virtual std::unique_ptr<Event> make_event() = 0;

  // The event now marks the end of the work that the stream has been given so far.
  virtual void record(Event& event, Stream stream) = 0;

  // Work that the stream is given from now on starts after the event.
  virtual void wait(Stream stream, const Event& event) = 0;

  // Blocks until all work before the event is done.
  virtual void synchronize(const Event& event) = 0;

  // Enqueues a copy from pinned memory on kCopyIn.
  virtual void copy_in(std::byte* to, const std::byte* from, std::size_t bytes) = 0;

  // Enqueues on kCopyIn: copies rows that are on the device into one tensor there and pads them, as Collator does on
  // the host. The views may be destroyed when this returns, but their memory must stay until the work is done.
  virtual void gather(std::span<const TensorView> rows, const Collator::Tensor& to, PadSide side,
                      const Scalar& pad) = 0;

  // Enqueues a copy to pinned memory on kCopyOut.
  virtual void copy_out(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
};

}  // namespace service_streamer::native
