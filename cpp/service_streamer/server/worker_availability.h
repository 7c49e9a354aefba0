#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "service_streamer/base/mutex.h"
#include "service_streamer/batching/engine.h"

namespace service_streamer::ipc {

// Whether there is any worker to hope for. Once there is none every request ends as kLost, with a note. Any thread.
class WorkerAvailability {
 public:
  explicit WorkerAvailability(Engine& engine) : engine_(engine) {}

  // Ends everything; nullopt: there is hope again.
  void set(std::optional<std::string> note) EXCLUDES(mutex_);

  // After Engine::submit(): ends the request if there is no hope. Whichever of the two comes second sees the other.
  void check(Request& request) EXCLUDES(mutex_);

  bool in_force() const { return in_force_.load(std::memory_order_acquire); }
  std::string note() const EXCLUDES(mutex_);

 private:
  static void publish_lost(EndedRequests& ended, const std::string& note);

  Engine& engine_;
  std::atomic<bool> in_force_{false};

  mutable Mutex mutex_;
  std::string note_ GUARDED_BY(mutex_);
};

}  // namespace service_streamer::ipc
