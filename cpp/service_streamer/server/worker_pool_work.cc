#include <algorithm>
#include <new>
#include <utility>

#include "service_streamer/calls/serialized_call.h"
#include "service_streamer/server/worker_pool.h"
#include "service_streamer/wire/message.h"

// The half of the pool that gives work to workers: new batches, and those of the dead.

namespace service_streamer::ipc {

TimePoint WorkerPool::serve(bool look) {
  for (;; look = false) {
    bury_dead();
    if (look) forget_ended_retries();
    for (const auto& [id, worker] : workers_) {
      worker->peer.flush_releases();
      if (look || !worker->asked || !retries_.empty()) give(*worker);
      deaths_ |= worker->peer.broken();
    }
    if (!deaths_) break;
  }
  const TimePoint now = Clock::now();
  kill_hung(now);
  TimePoint next = TimePoint::max();
  for (const auto& [id, worker] : workers_) {
    if (worker->asked) next = std::min(next, worker->until);
    if (worker->flight && !worker->killed_hung && hang_timeout_ > Duration::zero()) {
      next = std::min(next, worker->flight->sent + hang_timeout_);
    }
  }
  return next;
}

// What the worker can do now, if it is free; or it waits.
void WorkerPool::give(Worker& worker) {
  while (worker.free()) {
    if (!retries_.empty()) {
      take_from(worker);
      if (!give_again(worker)) continue;
      return;
    }
    CloseReason reason{};
    const Engine::Ready ready = engine_.start_waiting(worker.idle, reason, worker.until);
    worker.asked = ready != Engine::Ready::kBatch;
    if (ready == Engine::Ready::kClosed) worker.until = TimePoint::max();
    if (worker.asked) return;
    auto flight = std::make_unique<Flight>();
    EndedRequests expired;
    const bool any = engine_.cut(flight->batch, reason, expired);
    if (any) send(worker, std::move(flight));
    publish(expired);
  }
}

// The oldest batch of a worker that died. False: nobody waits for it any more.
bool WorkerPool::give_again(Worker& worker) {
  std::unique_ptr<Flight> flight = std::move(retries_.front());
  retries_.erase(retries_.begin());
  if (!drop_ended(*flight)) return false;
  send(worker, std::move(flight));
  return true;
}

// The worker has no memory for all of its batch at once: it goes out again in halves. False: it cannot be cut.
bool WorkerPool::halve(Worker& worker) {
  auto first = std::make_unique<Flight>();
  retries_.reserve(retries_.size() + 2);
  const BatchCut cut = middle_of(worker.flight->batch.parts);
  if (cut.items == 0) return false;
  engine_.split(worker.flight->batch, cut, first->batch);
  first->attempts = --worker.flight->attempts;  // it has not begun with it
  retries_.insert(retries_.begin(), std::move(worker.flight));
  retries_.insert(retries_.begin(), std::move(first));
  return true;
}

// Nobody may come to run them again, and somebody may wait for the last batch to end.
void WorkerPool::forget_ended_retries() {
  std::erase_if(retries_, [this](const std::unique_ptr<Flight>& flight) { return !drop_ended(*flight); });
}

// False: nothing is left of it, and the engine has it back.
bool WorkerPool::drop_ended(Flight& flight) {
  EndedRequests ended;
  ReleasedRequests released;
  engine_.drop_ended(flight.batch, ended, released);
  std::erase_if(flight.batch.parts, [](const RequestRange& part) { return part.request == nullptr; });
  publish(ended);
  let_go(released);
  if (!flight.batch.parts.empty()) return true;
  end(flight, Outcome::kAnswered, {});
  return false;
}

OutMessage WorkerPool::message_of(const Flight& flight) {
  std::vector<BatchHead> heads;
  std::vector<PayloadRange> ranges;
  heads.reserve(flight.batch.parts.size());
  ranges.reserve(flight.batch.parts.size());
  for (const RequestRange& part : flight.batch.parts) {
    heads.push_back({.items = part.count, .deadline = part.request->deadline, .whole = part.whole()});
    ranges.push_back({.payload = &SerializedCall::of(*part.request).payload, .begin = part.begin, .count = part.count});
  }
  return make_batch(flight.id, heads, ranges);
}

void WorkerPool::send(Worker& worker, std::unique_ptr<Flight> flight) {
  flight->id = ++last_flight_;
  flight->sent = Clock::now();
  if (flight->attempts > 0) flight->batch.dispatched = flight->sent;
  OutMessage message;
  try {
    message = message_of(*flight);
  } catch (const std::bad_alloc&) {
    return end(*flight, Outcome::kLost, "there was no memory to send the batch to a worker");
  }
  ++flight->attempts;
  worker.flight = std::move(flight);
  worker.peer.send(std::move(message));
  if (!worker.peer.broken()) return;
  --worker.flight->attempts;  // it was dead before
  deaths_ = true;
}

}  // namespace service_streamer::ipc
