#pragma once

// A device whose streams are queues that a test steps through by hand, in any order that their events allow.

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <utility>
#include <vector>

#include "service_streamer/native/device.h"

namespace service_streamer::support {

using Stream = native::Device::Stream;

// The streams; also the test's, who outlives the device.
class Streams {
 public:
  struct Moment {  // of an event
    std::uint64_t recorded = 0;
    std::uint64_t reached = 0;
  };

  void give(Stream stream, std::function<void()> work) { push(stream, {.work = std::move(work)}); }
  void record(const std::shared_ptr<Moment>& moment, Stream stream) {
    const std::lock_guard lock(mutex_);
    queue(stream).push_back({.record = moment, .version = ++moment->recorded});
  }
  void wait(Stream stream, const std::shared_ptr<Moment>& moment) {
    const std::lock_guard lock(mutex_);
    queue(stream).push_back({.wait = moment, .version = moment->recorded});
  }

  void synchronize(const Moment& moment) {
    std::unique_lock lock(mutex_);
    const std::uint64_t version = moment.recorded;
    reached_.wait(lock, [&] { return moment.reached >= version || broken_; });
    if (std::exchange(broken_, false)) throw std::runtime_error("the device is broken");
  }

  // What whoever synchronizes next is told.
  void break_down() {
    const std::lock_guard lock(mutex_);
    broken_ = true;
    reached_.notify_all();
  }

  // Does the next work of a stream, and what it has of events before and after that. False: there is none, or it waits.
  bool step(Stream stream) {
    pass_events(stream);
    std::function<void()> work;
    {
      const std::lock_guard lock(mutex_);
      std::deque<Work>& all = queue(stream);
      if (all.empty() || !all.front().work) return false;
      work = std::move(all.front().work);
    }
    work();  // without the lock, as a device does it
    {
      const std::lock_guard lock(mutex_);
      queue(stream).pop_front();
    }
    pass_events(stream);
    return true;
  }

  // As far as it goes.
  int step_all(Stream stream) {
    int steps = 0;
    while (step(stream)) ++steps;
    return steps;
  }
  void step_all() {
    bool any = true;
    while (any) {
      any = false;
      for (const Stream stream : {Stream::kCopyIn, Stream::kCompute, Stream::kCopyOut}) any |= step(stream);
    }
  }

 private:
  struct Work {
    std::function<void()> work = nullptr;
    std::shared_ptr<Moment> record = nullptr;
    std::shared_ptr<Moment> wait = nullptr;
    std::uint64_t version = 0;
  };

  std::deque<Work>& queue(Stream stream) { return queues_[static_cast<std::size_t>(stream)]; }
  void push(Stream stream, Work work) {
    const std::lock_guard lock(mutex_);
    queue(stream).push_back(std::move(work));
  }

  void pass_events(Stream stream) {
    const std::lock_guard lock(mutex_);
    std::deque<Work>& all = queue(stream);
    while (!all.empty() && !all.front().work) {
      const Work& first = all.front();
      if (first.wait != nullptr && first.wait->reached < first.version) return;
      if (first.record != nullptr) first.record->reached = first.version;
      all.pop_front();
      reached_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable reached_;
  std::array<std::deque<Work>, 3> queues_;
  bool broken_ = false;
};

class FakeEvent final : public native::Event {
 public:
  const std::shared_ptr<Streams::Moment> moment = std::make_shared<Streams::Moment>();
};

class FakeDevice final : public native::Device {
 public:
  explicit FakeDevice(std::shared_ptr<Streams> streams) : streams_(std::move(streams)) {}

  std::shared_ptr<std::byte> allocate_host(std::size_t bytes) override { return allocate(bytes); }
  std::shared_ptr<std::byte> allocate(std::size_t bytes) override {
    if (allocations_left == 0) throw std::bad_alloc();
    --allocations_left;
    return {new std::byte[bytes], std::default_delete<std::byte[]>()};
  }

  std::unique_ptr<native::Event> make_event() override { return std::make_unique<FakeEvent>(); }
  void record(native::Event& event, Stream stream) override { streams_->record(moment_of(event), stream); }
  void wait(Stream stream, const native::Event& event) override { streams_->wait(stream, moment_of(event)); }
  void synchronize(const native::Event& event) override { streams_->synchronize(*moment_of(event)); }

  void copy_in(std::byte* to, const std::byte* from, std::size_t bytes) override {
    streams_->give(Stream::kCopyIn, [=] { std::memcpy(to, from, bytes); });
  }
  void gather(std::span<const native::TensorView> rows, const native::Collator::Tensor& to, native::PadSide side,
              const native::Scalar& number) override {
    const std::vector<native::TensorView> views(rows.begin(), rows.end());
    streams_->give(Stream::kCopyIn, [=] {
      native::Shape sizes;
      std::size_t bytes = native::size_of(to.dtype);
      for (const std::int64_t size : to.sizes.values().subspan(1)) {
        sizes.push_back(size);
        bytes *= static_cast<std::size_t>(size);
      }
      std::byte* row = to.data;
      for (const native::TensorView& view : views)
        native::copy_padded(view, std::exchange(row, row + bytes), sizes, side, number);
    });
  }
  void copy_out(std::byte* to, const std::byte* from, std::size_t bytes) override {
    streams_->give(Stream::kCopyOut, [=] { std::memcpy(to, from, bytes); });
  }

  int allocations_left = 1 << 30;

 private:
  static const std::shared_ptr<Streams::Moment>& moment_of(const native::Event& event) {
    return dynamic_cast<const FakeEvent&>(event).moment;
  }

  const std::shared_ptr<Streams> streams_;
};

}  // namespace service_streamer::support
