#include "service_streamer/batching/recorder.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "service_streamer/base/system.h"

namespace service_streamer {
namespace {

using Kind = LoggedEvent::Kind;

std::uint64_t id_of(const Request& request) {
  return reinterpret_cast<std::uintptr_t>(&request);
}

}  // namespace

std::uint64_t Recorder::start(Duration limit, std::size_t max_events) {
  auto log = std::make_unique<EventLog>(Clock::now(), limit, max_events);  // reserves its memory without the lock
  MutexLock lock(mutex_);
  if (log_ != nullptr) return 0;
  log_ = std::move(log);
  recording_.store(true, std::memory_order_relaxed);
  return ++last_recording_;
}

std::string Recorder::finish(std::uint64_t recording) {
  std::unique_ptr<EventLog> log;
  TimePoint end;
  {
    MutexLock lock(mutex_);
    log = take_log(recording);
    end = Clock::now();
  }
  return log != nullptr ? log->finish(end) : std::string();
}

void Recorder::drop(std::uint64_t recording) {
  std::unique_ptr<EventLog> log;  // freed without the lock
  MutexLock lock(mutex_);
  log = take_log(recording);
}

void Recorder::record_sent(const Batch& batch, std::uint32_t worker) {
  if (!recording()) return;
  MutexLock lock(mutex_);
  if (recording()) log_batch(Kind::kSent, batch, Clock::now(), worker, 0);
}

void Recorder::record_returned(const Batch& batch) {
  if (!recording()) return;
  MutexLock lock(mutex_);
  if (recording()) log_batch(Kind::kReturned, batch, Clock::now(), 0, 0);
}

void Recorder::record_times(const Batch& batch, Duration decode, Duration predict, Duration encode) {
  if (!recording()) return;
  MutexLock lock(mutex_);
  if (!recording()) return;
  const TimePoint now = Clock::now();
  log_batch(Kind::kDecoded, batch, now, 0, decode.count());
  log_batch(Kind::kPredicted, batch, now, 0, predict.count());
  log_batch(Kind::kEncoded, batch, now, 0, encode.count());
}

void Recorder::record_phases(const Batch& batch, std::span<const BatchPhase> phases) {
  MutexLock lock(mutex_);
  if (!recording()) return;
  for (const BatchPhase& phase : phases) {
    log_batch(phase.kind, batch, phase.end, 0, (phase.end - phase.begin).count());
  }
}

// --- for the engine ---

void Recorder::log_request(Kind kind, const Request& request, TimePoint now, const Mutex& held) {
  same_mutex(held, mutex_);
  log(LoggedEvent{.time = now.time_since_epoch().count(),
                  .value = id_of(request),
                  .items = request.size,
                  .priority = request.priority,
                  .kind = kind,
                  .detail = static_cast<std::uint8_t>(request.outcome)});
}

void Recorder::log_cut(const Batch& batch, TimePoint now, const Mutex& held) {
  same_mutex(held, mutex_);
  log({.time = now.time_since_epoch().count(),
       .batch = batch.id,
       .worker = thread_id(),
       .items = static_cast<std::uint32_t>(batch.items),
       .kind = Kind::kCut,
       .detail = static_cast<std::uint8_t>(batch.reason)});
  for (const RequestRange& range : batch.ranges) {
    log({.time = now.time_since_epoch().count(),
         .value = id_of(*range.request),
         .batch = batch.id,
         .items = range.count,
         .kind = Kind::kRange});
  }
}

void Recorder::log_split(const Batch& first, const Batch& whole, TimePoint now, const Mutex& held) {
  same_mutex(held, mutex_);
  log_batch(Kind::kSplit, first, now, thread_id(), whole.id);
}

void Recorder::log_joined(const Batch& first, TimePoint now, const Mutex& held) {
  same_mutex(held, mutex_);
  log_batch(Kind::kJoined, first, now, 0, 0);
}

void Recorder::log_completed(const Batch& batch, Outcome outcome, TimePoint now, const Mutex& held) {
  same_mutex(held, mutex_);
  log({.time = now.time_since_epoch().count(),
       .batch = batch.id,
       .items = static_cast<std::uint32_t>(batch.items),
       .kind = Kind::kCompleted,
       .detail = static_cast<std::uint8_t>(outcome)});
}

// --- under the mutex ---

std::unique_ptr<EventLog> Recorder::take_log(std::uint64_t recording) {
  if (recording != last_recording_) return nullptr;
  recording_.store(false, std::memory_order_relaxed);
  return std::move(log_);
}

void Recorder::log_batch(Kind kind, const Batch& batch, TimePoint now, std::uint32_t worker, std::int64_t value) {
  log({.time = now.time_since_epoch().count(),
       .value = static_cast<std::uint64_t>(std::max<std::int64_t>(value, 0)),
       .batch = batch.id,
       .worker = worker,
       .items = static_cast<std::uint32_t>(batch.items),
       .kind = kind});
}

void Recorder::log(LoggedEvent event) {
  constexpr int kMost = std::numeric_limits<std::uint16_t>::max();
  event.queued_items = static_cast<std::uint32_t>(queue_.items() + queue_.alone_items());
  event.running_batches = static_cast<std::uint16_t>(std::clamp(running_batches_, 0, kMost));
  if (!log_->add(event)) recording_.store(false, std::memory_order_relaxed);  // its time is over
}

}  // namespace service_streamer
