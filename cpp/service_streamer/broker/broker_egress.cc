#include "service_streamer/broker/broker_egress.h"

#include <algorithm>
#include <utility>

#include "service_streamer/base/file_descriptor.h"

namespace service_streamer::ipc {

BrokerEgress::BrokerEgress(Engine& engine, std::uint32_t chunk_size)
    : engine_(engine),
      generation_(ForkLock::generation()),
      waiter_(WaiterPool::acquire()),
      forwarded_(std::make_shared<ForwardedRequests>(engine, waiter_, chunk_size)) {
  // Callers that are woken soon submit again, and all their requests go to the broker in one round trip.
  idle_.behind = Engine::IdleWorker::Behind::kAll;
}

// In a forked child a mutex may be locked forever, so nothing is touched there.
BrokerEgress::~BrokerEgress() {
  if (generation_ != ForkLock::generation()) return;
  stop();
  stop_waiting();  // a take() that was running during stop() may have started to wait again
  WaiterPool::release(waiter_);
}

BrokerEgress::TakeStatus BrokerEgress::take(std::size_t limit, TimePoint deadline, Taken& taken,
                                            std::int64_t least_priority) {
  while (!stopped_.load(std::memory_order_acquire)) {
    bool closed = false;
    bool held_back = false;
    TimePoint until = std::min(deadline, calls::expire(engine_, waiter_));
    until = std::min(until, forward_queued(limit, least_priority, held_back, closed));
    const bool interrupted = interrupted_.exchange(false, std::memory_order_acq_rel);
    forwarded_->take(limit, least_priority, taken);
    if (!taken.chunks.empty() || !taken.cancelled.empty()) return TakeStatus::kTaken;
    if (closed && taken.in_flight == 0) return TakeStatus::kStopped;
    if (interrupted || Clock::now() >= deadline) return TakeStatus::kNothing;
    if (held_back) continue;  // what should have been taken has ended meanwhile
    if (waiter_.parker.park(until) == Parker::Wake::kInterrupted) return TakeStatus::kInterrupted;
  }
  stop_waiting();  // stop() may have run before the last start_waiting()
  return TakeStatus::kStopped;
}

void BrokerEgress::take_more(std::size_t limit, Taken& taken, std::int64_t least_priority) {
  std::size_t items = 0;
  for (const Chunk& chunk : taken.chunks) items += chunk.items;
  if (items >= limit || stopped_.load(std::memory_order_acquire)) return;
  bool closed = false;
  bool held_back = false;
  forward_queued(limit - items, least_priority, held_back, closed);
  const auto cancelled = std::move(taken.cancelled);
  forwarded_->take(limit - items, least_priority, taken);
  taken.cancelled.insert(taken.cancelled.begin(), cancelled.begin(), cancelled.end());
}

void BrokerEgress::interrupt() {
  interrupted_.store(true, std::memory_order_release);
  waiter_.parker.unpark();
}

void BrokerEgress::stop() {
  if (stopped_.exchange(true, std::memory_order_acq_rel)) return;
  forwarded_->close();  // first: what take() still forwards ends as closed
  stop_waiting();
  waiter_.parker.unpark();
}

// Forwards queued requests until `limit` items can be taken and no request of a higher priority than theirs is queued.
// Returns when to ask the engine again. held_back: some queued requests must wait for those that can be taken.
TimePoint BrokerEgress::forward_queued(std::size_t limit, std::int64_t least_priority, bool& held_back, bool& closed) {
  while (limit > 0) {
    const ForwardedRequests::Wanted wanted = forwarded_->wanted(limit, least_priority);
    held_back = wanted.least_priority > least_priority;
    engine_.hold_back_below(wanted.least_priority);
    CloseReason reason{};
    TimePoint until;
    const Engine::Ready ready = engine_.start_waiting(idle_, reason, until);
    closed = ready == Engine::Ready::kClosed;
    if (ready == Engine::Ready::kNotYet) return until;
    if (ready != Engine::Ready::kBatch) break;
    Batch batch;
    EndedRequests expired;
    engine_.forward(batch, wanted.items, expired);
    publish(expired);
    if (!batch.ranges.empty()) forwarded_->add(batch);
  }
  return TimePoint::max();
}

void BrokerEgress::stop_waiting() {
  engine_.deadline_timer().stop_watching(waiter_);
  engine_.stop_waiting(idle_);
}

}  // namespace service_streamer::ipc
