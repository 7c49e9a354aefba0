#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "service_streamer/base/clock.h"
#include "service_streamer/base/mutex.h"
#include "service_streamer/batching/batch.h"
#include "service_streamer/batching/event_log.h"
#include "service_streamer/batching/request.h"
#include "service_streamer/batching/request_queue.h"

namespace service_streamer {

// Records what happens in an engine, for a timeline. There is at most one recording at a time.
//
// A part of Engine, which shares the mutex of the engine: each event has the state of the queue at its time. All
// methods are thread-safe. None blocks. Without a recording an event costs one relaxed load.
class Recorder {
 public:
  // The queue and the number of running batches are members of the engine.
  Recorder(Mutex& mutex, const RequestQueue& queue, const int& running_batches)
      : mutex_(mutex), queue_(queue), running_batches_(running_batches) {}

  // Records what happens from now on, for at most `limit` and at most the last `max_events` events. Returns the number
  // of the recording, or 0 if there is one already. Throws std::bad_alloc.
  std::uint64_t start(Duration limit, std::size_t max_events) EXCLUDES(mutex_);
  // Ends the recording, and returns EventLog::finish(). Empty: there is no such recording. Throws std::bad_alloc.
  std::string finish(std::uint64_t recording) EXCLUDES(mutex_);
  // Ends the recording and drops its events. Does nothing if there is no such recording.
  void drop(std::uint64_t recording) EXCLUDES(mutex_);

  // False if there is no recording, or once an event came after its limit. Takes no lock.
  bool recording() const { return recording_.load(std::memory_order_relaxed); }

  // What the engine does not see of a worker. Nothing happens if there is no recording.
  void record_sent(const Batch& batch, std::uint32_t worker) EXCLUDES(mutex_);
  void record_returned(const Batch& batch) EXCLUDES(mutex_);
  void record_times(const Batch& batch, Duration decode, Duration predict, Duration encode) EXCLUDES(mutex_);
  void record_phases(const Batch& batch, std::span<const BatchPhase> phases) EXCLUDES(mutex_);

  // --- for the engine: only if recording(); it passes its mutex, which it holds ---
  void log_request(LoggedEvent::Kind kind, const Request& request, TimePoint now, const Mutex& held) REQUIRES(held);
  void log_cut(const Batch& batch, TimePoint now, const Mutex& held) REQUIRES(held);
  void log_split(const Batch& first, const Batch& whole, TimePoint now, const Mutex& held) REQUIRES(held);
  void log_joined(const Batch& first, TimePoint now, const Mutex& held) REQUIRES(held);
  void log_completed(const Batch& batch, Outcome outcome, TimePoint now, const Mutex& held) REQUIRES(held);

 private:
  std::unique_ptr<EventLog> take_log(std::uint64_t recording) REQUIRES(mutex_);
  void log_batch(LoggedEvent::Kind kind, const Batch& batch, TimePoint now, std::uint32_t worker, std::int64_t value)
      REQUIRES(mutex_);
  void log(LoggedEvent event) REQUIRES(mutex_);

  Mutex& mutex_;  // of the engine

  std::atomic<bool> recording_{false};  // written under mutex_; true: log_ is set
  const RequestQueue& queue_ GUARDED_BY(mutex_);
  const int& running_batches_ GUARDED_BY(mutex_);
  std::unique_ptr<EventLog> log_ GUARDED_BY(mutex_);  // until the recording is finished or dropped
  std::uint64_t last_recording_ GUARDED_BY(mutex_) = 0;
};

}  // namespace service_streamer
