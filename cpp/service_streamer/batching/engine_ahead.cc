#include "service_streamer/batching/engine.h"

// Batches for workers that are still busy with another.

namespace service_streamer {

Engine::Ready Engine::poll_ahead(CloseReason& reason) {
  MutexLock lock(mutex_);
  if (exhausted()) return Ready::kClosed;
  // Without asking the policy, for which a worker that asks is an idle one.
  const std::size_t items = unpromised();
  if (items == 0) return Ready::kNotYet;
  const bool full = items >= options_.batch_size;
  if (!full && !closed()) return Ready::kNotYet;
  reason = full ? CloseReason::kFull : CloseReason::kDrain;
  ++reserved_;
  return Ready::kBatch;
}

}  // namespace service_streamer
