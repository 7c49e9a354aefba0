#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "service_streamer/base/trace.h"
#include "service_streamer/batching/event_log.h"

namespace service_streamer::native {

// The phases of one batch, for a recording. Only the first ones are kept: a batch that runs in many groups has more.
// Used by the worker of the batch. Does not allocate.
class PhaseLog {
 public:
  void add(const BatchPhase& phase) {
    if (count_ < phases_.size()) phases_[count_++] = phase;
  }
  std::span<const BatchPhase> phases() const { return std::span(phases_).first(count_); }

 private:
  std::array<BatchPhase, 60> phases_{};
  std::size_t count_ = 0;
};

// A phase of a batch in the calling thread: a TraceRange that is also noted in a PhaseLog. With nullptr, no clock is
// read.
class PhaseRange {
 public:
  PhaseRange(PhaseLog* log, LoggedEvent::Kind kind);
  ~PhaseRange();
  PhaseRange(const PhaseRange&) = delete;
  PhaseRange& operator=(const PhaseRange&) = delete;

 private:
  const TraceRange trace_;
  PhaseLog* const log_;
  const LoggedEvent::Kind kind_;
  const TimePoint begin_;
};

}  // namespace service_streamer::native
