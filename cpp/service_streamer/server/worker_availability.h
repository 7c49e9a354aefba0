#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "service_streamer/base/mutex.h"
#include "service_streamer/batching/engine.h"

namespace service_streamer::ipc {

// Records whether a worker is running or being started. While none is, every request ends as kLost with a note, because
// no worker would ever run it. Thread-safe; no call blocks.
class WorkerAvailability {
 public:
  explicit WorkerAvailability(Engine& engine) : engine_(engine) {}

  // Declares that no worker is available, and ends all requests. nullopt: a worker is available again.
  void set(std::optional<std::string> note) EXCLUDES(mutex_);

  // Call this after Engine::submit(). Ends the request if no worker is available. Of set() and submit(), the later one
  // sees the earlier one, so no request is missed.
  void check(Request& request) EXCLUDES(mutex_);

  bool unavailable() const { return unavailable_.load(std::memory_order_acquire); }
  std::string note() const EXCLUDES(mutex_);

 private:
  Engine& engine_;
  std::atomic<bool> unavailable_{false};

  mutable Mutex mutex_;
  std::string note_ GUARDED_BY(mutex_);
};

}  // namespace service_streamer::ipc
