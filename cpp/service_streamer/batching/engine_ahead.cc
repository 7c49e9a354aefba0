#include "service_streamer/batching/engine.h"

// Batches for workers that are still busy with another batch.

namespace service_streamer {

Engine::Ready Engine::poll_ahead(CloseReason& reason) {
  MutexLock lock(mutex_);
  if (exhausted()) return Ready::kClosed;
  // The policy is not asked, because it expects the worker to be idle.
  const std::size_t items = unreserved_items();
  if (items == 0) return Ready::kNotYet;
  const bool full = items >= batch_limit_;
  if (!full && !closed()) return Ready::kNotYet;
  reason = full ? CloseReason::kFull : CloseReason::kDrain;
  ++reserved_;
  return Ready::kBatch;
}

}  // namespace service_streamer
