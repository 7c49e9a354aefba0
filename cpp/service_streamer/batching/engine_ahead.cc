#include "service_streamer/batching/engine.h"

// Batches for workers that are still busy with another batch.

namespace service_streamer {

Engine::Ready Engine::poll_ahead(CloseReason& reason) {
  MutexLock lock(mutex_);
  if (exhausted()) return Ready::kClosed;
  // The policy is not asked, because it expects the worker to be idle.
  const std::size_t items = unreserved_items();
  if (items == 0 || (queue_.grouped() && reserved_ > 0)) return Ready::kNotYet;
  const TimePoint now = Clock::now();
  const bool full = queue_.grouped() ? first_of_full_batch(now) != nullptr : items >= options_.batch_size;
  if (!full && !closed()) return Ready::kNotYet;
  // A request of a higher priority would have to wait for two batches.
  if (!closed() && queue_.expects_higher_priority(now)) return Ready::kNotYet;
  reason = full ? CloseReason::kFull : CloseReason::kDrain;
  ++reserved_;
  return Ready::kBatch;
}

}  // namespace service_streamer
