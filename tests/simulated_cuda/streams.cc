#include "streams.h"

#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace simulated_cuda {
namespace {

constexpr c10::StreamId kPool = 32;  // the number of torch's streams, used in turn

struct AllStreams {
  std::mutex mutex;
  std::map<std::pair<c10::DeviceIndex, c10::StreamId>, Stream*> by_number;
};

AllStreams& all_streams() {
  static auto& only = *new AllStreams;
  return only;
}

thread_local c10::DeviceIndex device_of_thread = 0;
thread_local std::array<c10::StreamId, kDevices> streams_of_thread{};

}  // namespace

void Point::reach() {
  const std::lock_guard held(mutex_);
  reached_ = true;
  changed_.notify_all();
}

void Point::wait() {
  std::unique_lock held(mutex_);
  changed_.wait(held, [&] { return reached_; });
}

bool Point::reached() {
  const std::lock_guard held(mutex_);
  return reached_;
}

Stream::Stream() {
  std::thread(&Stream::run, this).detach();
}

void Stream::enqueue(std::function<void()> job) {
  const std::lock_guard held(mutex_);
  jobs_.push_back(std::move(job));
  changed_.notify_one();
}

std::shared_ptr<Point> Stream::record_point() {
  auto point = std::make_shared<Point>();
  enqueue([point] { point->reach(); });
  return point;
}

void Stream::wait_for(std::shared_ptr<Point> point) {
  enqueue([point = std::move(point)] { point->wait(); });
}

void Stream::run() {
  std::minstd_rand random(std::random_device{}());
  while (true) {
    std::unique_lock held(mutex_);
    changed_.wait(held, [&] { return !jobs_.empty(); });
    const std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    held.unlock();
    if (random() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
    job();
  }
}

Stream& stream_of(const c10::Stream& stream) {
  AllStreams& all = all_streams();
  const std::lock_guard held(all.mutex);
  Stream*& found = all.by_number[{stream.device_index(), stream.id()}];
  if (found == nullptr) found = new Stream;
  return *found;
}

void synchronize(c10::DeviceIndex device) {
  std::vector<std::shared_ptr<Point>> points;
  {
    AllStreams& all = all_streams();
    const std::lock_guard held(all.mutex);
    for (const auto& [number, stream] : all.by_number) {
      if (number.first == device) points.push_back(stream->record_point());
    }
  }
  for (const auto& point : points) point->wait();
}

c10::Device current_device() {
  return {c10::kCUDA, device_of_thread};
}

void set_current_device(c10::Device device) {
  device_of_thread = or_current(device).index();
}

c10::Device or_current(c10::Device device) {
  return device.has_index() ? device : current_device();
}

c10::Stream current_stream(c10::Device device) {
  device = or_current(device);
  return c10::Stream(c10::Stream::UNSAFE, device, streams_of_thread.at(static_cast<std::size_t>(device.index())));
}

void set_current_stream(const c10::Stream& stream) {
  streams_of_thread.at(static_cast<std::size_t>(stream.device_index())) = stream.id();
}

Stream& current(c10::Device device) {
  return stream_of(current_stream(device));
}

c10::Stream next_of_pool(c10::Device device) {
  static std::atomic<c10::StreamId> next{0};
  return c10::Stream(c10::Stream::UNSAFE, or_current(device), 1 + next++ % kPool);
}

}  // namespace simulated_cuda
