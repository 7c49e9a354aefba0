#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "service_streamer/base/clock.h"

namespace service_streamer {

// Something that happened to a request or a batch, for a timeline. The layout is also that of EventLog::finish().
struct LoggedEvent {
  enum class Kind : std::uint8_t {
    kArrived,    // a request; `items` are its size
    kCut,        // a batch, by the thread `worker`; `detail` is the CloseReason
    kRange,      // `items` of a request are in a batch
    kSent,       // a batch, to the worker process `worker`
    kReturned,   // a batch, from a worker process that could not run it
    kDecoded,    // a batch, by a worker process, in `value` nanoseconds
    kPredicted,  // the same
    kEncoded,    // the same
    kSplit,      // the batch `value` was cut in two; `batch` is its front, taken by the thread `worker`
    kJoined,     // a front that failed and was put back
    kCompleted,  // a batch; `detail` is the Outcome
    kEnded,      // a request; `detail` is the Outcome

    // A phase of a batch in a thread of a native model. It took `value` nanoseconds and ended at `time`, which may be
    // before the time of earlier events. With a device, the thread only enqueues the copies and the computation.
    kCollated,
    kCopiedIn,
    kComputed,
    kCopiedOut,
    kWaited,  // for the device
  };

  std::int64_t time = 0;    // nanoseconds, of Clock
  std::uint64_t value = 0;  // kArrived, kRange, kEnded: the request, by its address
  std::uint32_t batch = 0;
  std::uint32_t worker = 0;
  std::uint32_t items = 0;
  std::int32_t priority = 0;          // of a request
  std::uint32_t queued_items = 0;     // after an event of the engine
  std::uint16_t running_batches = 0;  // the same
  Kind kind = Kind::kArrived;
  std::uint8_t detail = 0;
};
static_assert(sizeof(LoggedEvent) == 40, "Python reads these bytes");

// A phase of a batch in the thread that runs it.
struct BatchPhase {
  LoggedEvent::Kind kind = LoggedEvent::Kind::kComputed;
  TimePoint begin;
  TimePoint end;
};

// The last events before the end of a recording. If there is no room for more, an event replaces the oldest one. The
// owner serialises all calls. The constructor reserves the memory, which takes no pages before they are written.
class EventLog {
 public:
  static constexpr Duration kLongest = std::chrono::hours(1);
  static constexpr std::size_t kMostEvents = std::size_t{1} << 22;

  // Larger limits are lowered to the constants above. Throws std::bad_alloc.
  EventLog(TimePoint start, Duration limit, std::size_t max_events);

  // Ignores events after the limit, and returns false for them. Does not allocate.
  bool add(const LoggedEvent& event) {
    if (event.time > until_) return false;
    if (count_ < capacity_) {
      bytes_.append(reinterpret_cast<const char*>(&event), sizeof event);
      ++count_;
    } else {
      std::memcpy(bytes_.data() + oldest_ * sizeof event, &event, sizeof event);
      if (++oldest_ == capacity_) oldest_ = 0;
      ++lost_;
    }
    return true;
  }

  std::uint64_t lost() const { return lost_; }  // events that were replaced

  // Returns the events, a line feed, and a line of JSON: process, start, end, number of lost events, position of the
  // oldest event, and the names of reasons and outcomes. The event before the oldest one is the latest. To be called
  // once. The events are not copied: they can be many.
  std::string finish(TimePoint end);

 private:
  const std::int64_t start_;
  const std::int64_t until_;
  const std::int64_t unix_start_;  // microseconds
  const std::size_t capacity_;
  std::string bytes_;  // the events
  std::size_t count_ = 0;
  std::size_t oldest_ = 0;
  std::uint64_t lost_ = 0;
};

}  // namespace service_streamer
