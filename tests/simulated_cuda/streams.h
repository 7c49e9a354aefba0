#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

// Streams and events of GPUs that do not exist: what a stream is given is done by a thread of its, in order, now and
// then after a moment, of which the host knows nothing. So whoever forgets to wait for something is found out.
namespace simulated_cuda {

constexpr c10::DeviceIndex kDevices = 2;

// A place in what a stream was given.
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
  void give(std::function<void()> job);
  std::shared_ptr<Point> mark();  // after all that it was given until now
  void wait_for(std::shared_ptr<Point> point);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
};

// One for each number, made when it is first asked for; they stay.
Stream& stream_of(const c10::Stream& stream);

// Those of the calling thread.
c10::Device current_device();
void set_current_device(c10::Device device);
c10::Device or_current(c10::Device device);  // where it has no number
c10::Stream current_stream(c10::Device device);
void set_current_stream(const c10::Stream& stream);
Stream& current(c10::Device device);

c10::Stream next_of_pool(c10::Device device);

// Blocks until all streams of a device are done.
void synchronize(c10::DeviceIndex device);

}  // namespace simulated_cuda
