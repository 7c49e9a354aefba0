#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "service_streamer/base/clock.h"
#include "service_streamer/batching/engine.h"
#include "service_streamer/broker/forwarded_requests.h"

namespace service_streamer::ipc {

// The sending end of a message broker: the requests of this process's engine leave as bytes, and results come back. The
// requests are LocalCalls whose payloads have no blocks. One thread calls take(). Any thread may bring results to
// forwarded(). A BrokerEgress has no thread and no descriptor.
//
// The engine is only a waiting room. It should be greedy; its batch_size does not matter, its max_queue does. take()
// also ends requests whose deadline has passed. While no thread is in take(), deadlines need a timer thread
// (DeadlineTimer::wait).
//
// Construct and destroy it under the lock that guards WaiterPool, which is the GIL. A forked child must not use it; its
// destructor does nothing there.
class BrokerEgress {
 public:
  // The engine must outlive it.
  BrokerEgress(Engine& engine, std::uint32_t chunk_size);
  ~BrokerEgress();  // stop()
  BrokerEgress(const BrokerEgress&) = delete;
  BrokerEgress& operator=(const BrokerEgress&) = delete;

  enum class TakeStatus { kTaken, kNothing, kStopped, kInterrupted };
  using Taken = ForwardedRequests::Taken;

  // Blocks until there are chunks to send or requests to cancel (kTaken), until the deadline or interrupt()
  // (kNothing), or until a signal (kInterrupted). kStopped: stop() was called, or the engine is closed and empty, and
  // nothing is in flight. Takes chunks until they have `limit` items; the last chunk may exceed it. Higher priorities
  // go first, and chunks of requests below `least_priority` are not taken. With limit 0 it takes none, and does not see
  // that the engine is closed.
  TakeStatus take(std::size_t limit, TimePoint deadline, Taken& taken, std::int64_t least_priority = kAnyPriority);

  // For the thread that take() gave chunks, once it can go on: in Python when it has the GIL. Adds to them what was
  // queued meanwhile. Never blocks.
  void take_more(std::size_t limit, Taken& taken, std::int64_t least_priority = kAnyPriority);

  // The requests in flight. Results and losses are reported there, by any thread.
  ForwardedRequests& forwarded() { return *forwarded_; }

  // Any thread. Ends this or the next call of take().
  void interrupt();

  // Any thread. Requests in flight end as kClosed; queued requests stay. take() returns kStopped. Idempotent.
  void stop();

 private:
  TimePoint forward_queued(std::size_t limit, std::int64_t least_priority, bool& held_back, bool& closed);
  void stop_waiting();

  // Constant after construction.
  Engine& engine_;
  const std::uint32_t generation_;

  // Own synchronisation. idle_ is guarded by the engine's mutex.
  Waiter& waiter_;
  Engine::IdleWorker idle_{waiter_};
  const std::shared_ptr<ForwardedRequests> forwarded_;
  std::atomic<bool> interrupted_{false};
  std::atomic<bool> stopped_{false};
};

}  // namespace service_streamer::ipc
