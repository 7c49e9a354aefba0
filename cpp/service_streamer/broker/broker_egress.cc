#include "service_streamer/broker/broker_egress.h"

#include <algorithm>

#include "service_streamer/base/file_descriptor.h"

namespace service_streamer::ipc {

Outlet::Outlet(Engine& engine, std::uint32_t chunk_size)
    : engine_(engine),
      generation_(ForkLock::generation()),
      waiter_(WaiterPool::acquire()),
      handed_out_(std::make_shared<HandedOut>(engine, waiter_, chunk_size)) {}

// In a forked child whatever another thread held is held for ever.
Outlet::~Outlet() {
  if (generation_ != ForkLock::generation()) return;
  stop();
  leave();  // a take() that ended with something may have come between
  WaiterPool::release(waiter_);
}

Outlet::Got Outlet::take(std::size_t limit, TimePoint deadline, Taken& taken) {
  while (!stopped_.load(std::memory_order_acquire)) {
    bool closed = false;
    bool interrupted = false;
    TimePoint until;
    {
      const MutexLock turn(turn_);
      until = std::min(deadline, expire());
      until = std::min(until, pull(limit, closed));
      interrupted = interrupted_.exchange(false, std::memory_order_acq_rel);
      handed_out_->take(limit, taken);
    }
    if (!taken.parcels.empty() || !taken.withdrawn.empty()) return Got::kSomething;
    if (closed && taken.in_flight == 0) return Got::kStopped;
    if (interrupted || Clock::now() >= deadline) return Got::kNothing;
    if (waiter_.parker.park(until) == Parker::Wake::kInterrupted) return Got::kInterrupted;
  }
  leave();  // stop() may have come in the midst of this
  return Got::kStopped;
}

bool Outlet::take_now(std::size_t limit, Taken& taken) {
  if (stopped_.load(std::memory_order_acquire) || !turn_.try_lock()) return false;
  bool closed = false;
  pull(limit, closed);
  handed_out_->take(limit, taken);
  interrupted_.store(true, std::memory_order_release);
  turn_.unlock();
  if (stopped_.load(std::memory_order_acquire)) leave();  // as in take()
  return true;
}

void Outlet::interrupt() {
  interrupted_.store(true, std::memory_order_release);
  waiter_.parker.unpark();
}

void Outlet::stop() {
  if (stopped_.exchange(true, std::memory_order_acq_rel)) return;
  handed_out_->close();
  leave();
  waiter_.parker.unpark();
}

TimePoint Outlet::expire() {
  EndedRequests ended;
  const TimePoint next = engine_.watch_deadlines(waiter_, ended);
  publish(ended);
  return next;
}

// Has enough handed out to be taken. Between two calls the engine may promise something: it comes with the next one.
TimePoint Outlet::pull(std::size_t limit, bool& closed) {
  for (std::size_t items = 0; (items = handed_out_->items_to_take()) < limit;) {
    CloseReason reason{};
    TimePoint until;
    const Engine::Ready ready = engine_.start_waiting(idle_, reason, until);
    closed = ready == Engine::Ready::kClosed;
    if (ready == Engine::Ready::kNotYet) return until;
    if (ready != Engine::Ready::kBatch) break;
    Batch batch;
    EndedRequests expired;
    engine_.hand_on(batch, limit - items, expired);
    publish(expired);
    if (!batch.parts.empty()) handed_out_->add(batch);
  }
  return TimePoint::max();
}

void Outlet::leave() {
  engine_.stop_watching(waiter_);
  engine_.stop_waiting(idle_);
}

}  // namespace service_streamer::ipc
