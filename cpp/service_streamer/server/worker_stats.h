#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "service_streamer/base/mutex.h"
#include "service_streamer/batching/stats.h"
#include "service_streamer/server/server.h"
#include "service_streamer/wire/message.h"

namespace service_streamer::ipc {

// The statistics of one worker process. Written by the IO thread, read by any thread.
class WorkerStats {
 public:
  WorkerStats(std::uint32_t id, pid_t pid) : id_(id), pid_(pid) {}

  void became_ready(std::string about) EXCLUDES(mutex_);
  void is_retiring() { state_.store(WorkerReport::State::kRetiring, std::memory_order_relaxed); }
  void answered(std::size_t items, const ReplyMessage& reply, Duration round_trip);

  WorkerReport report() const EXCLUDES(mutex_);

 private:
  const std::uint32_t id_;
  const pid_t pid_;

  std::atomic<WorkerReport::State> state_{WorkerReport::State::kStarting};
  std::atomic<std::uint64_t> batches_{0};
  std::atomic<std::uint64_t> items_{0};
  DurationHistogram decode_;
  DurationHistogram predict_;
  DurationHistogram encode_;
  DurationHistogram transport_;

  mutable Mutex mutex_;
  std::string about_ GUARDED_BY(mutex_);
};

}  // namespace service_streamer::ipc
