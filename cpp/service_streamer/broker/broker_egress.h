#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "service_streamer/base/clock.h"
#include "service_streamer/batching/engine.h"
#include "service_streamer/broker/forwarded_requests.h"

namespace service_streamer::ipc {

// Where the requests of this process' engine (LocalCalls, their payloads without blocks) leave it as bytes, for a broker say. One
// thread takes them; any thread brings answers. Has no thread of its own, and opens nothing.
//
// The engine is only a waiting room (make it greedy; its batch_size does not matter, its max_queue does). As its ClientLink would, the
// thread that takes watches the deadlines of requests that nobody waits for: while it is elsewhere, nobody ends those, unless the
// engine has a timer thread (Engine::wait_for_deadline).
//
// To be made and destroyed with what guards WaiterPool (the GIL). In a forked child nothing of it may be used.
class BrokerEgress {
 public:
  // The engine must outlive it.
  BrokerEgress(Engine& engine, std::uint32_t chunk_size);
  ~BrokerEgress();  // stop()
  BrokerEgress(const BrokerEgress&) = delete;
  BrokerEgress& operator=(const BrokerEgress&) = delete;

  enum class Got { kSomething, kNothing, kStopped, kInterrupted };
  using Taken = ForwardedRequests::Taken;

  // Blocks until something is queued or to be withdrawn (kSomething), the deadline or interrupt() (kNothing), a signal
  // (kInterrupted), or the end (kStopped): stop(), or the engine is closed, empty, and nothing is in flight. `limit`: of the items of
  // all chunks, but for the last one; 0: none, and the end of the engine is not seen either.
  Got take(std::size_t limit, TimePoint deadline, Taken& taken);

  // Any thread. EndedCalls, losses and what else there is to be said of requests that are out.
  ForwardedRequests& handed_out() { return *forwarded_; }

  // Any thread. Ends take(), or the next one if nobody is in it.
  void interrupt();

  // Any thread; idempotent. What is out ends as kClosed; what is queued stays.
  void stop();

 private:
  TimePoint pull(std::size_t limit, bool& closed);
  void leave();

  // Constant after construction.
  Engine& engine_;
  const std::uint32_t generation_;

  // Own synchronisation; idle_ is the engine's.
  Waiter& waiter_;
  Engine::IdleWorker idle_{waiter_};
  const std::shared_ptr<ForwardedRequests> forwarded_;
  std::atomic<bool> interrupted_{false};
  std::atomic<bool> stopped_{false};
};

}  // namespace service_streamer::ipc
