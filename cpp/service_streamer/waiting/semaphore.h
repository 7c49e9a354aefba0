#pragma once

#include <memory>

#include "service_streamer/base/clock.h"

namespace service_streamer {

// What a Parker sleeps on with SERVICE_STREAMER_PORTABLE. One thread waits, and any thread posts.
class Semaphore {
 public:
  enum class Wake { kUnparked, kTimeout, kInterrupted };
  using Maker = std::unique_ptr<Semaphore> (*)() noexcept;

  Semaphore() = default;
  virtual ~Semaphore() = default;
  Semaphore(const Semaphore&) = delete;
  Semaphore& operator=(const Semaphore&) = delete;

  // Blocks until post() or `deadline` (TimePoint::max() means none), or spuriously. A post() before is kept. A kind of
  // semaphore that sees signals also returns when a signal handler ran in this thread.
  virtual Wake wait(TimePoint deadline) = 0;
  virtual void post() = 0;

  // A new semaphore: what `maker` returns or, where that is nullptr, a condition variable, which sees no signals.
  // Throws std::bad_alloc.
  static std::unique_ptr<Semaphore> make();
  static void make_by(Maker maker);  // nullptr: the condition variable
};

}  // namespace service_streamer
