#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

// Simulated streams. The thread of a stream executes its jobs in order. Random delays reveal code that does not wait
// for the results.
namespace simulated_cuda {

constexpr c10::DeviceIndex kDevices = 2;

// A point in the jobs of a stream.
class Point {
 public:
  void reach();
  void wait();
  bool reached();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool reached_ = false;
};

class Stream {
 public:
  Stream();
  void enqueue(std::function<void()> job);
  std::shared_ptr<Point> record_point();  // after all jobs so far
  void wait_for(std::shared_ptr<Point> point);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
};

// The stream for a torch stream, created on first use. Streams are never destroyed.
Stream& stream_of(const c10::Stream& stream);

// The current device and stream of the calling thread.
c10::Device current_device();
void set_current_device(c10::Device device);
c10::Device or_current(c10::Device device);  // the current device if it has no index
c10::Stream current_stream(c10::Device device);
void set_current_stream(const c10::Stream& stream);
Stream& current(c10::Device device);

c10::Stream next_of_pool(c10::Device device);

// Blocks until all streams of a device are idle.
void synchronize(c10::DeviceIndex device);

}  // namespace simulated_cuda
