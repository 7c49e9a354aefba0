#include <algorithm>
#include <new>
#include <utility>

#include "service_streamer/calls/serialized_call.h"
#include "service_streamer/server/worker_pool.h"
#include "service_streamer/wire/message.h"

// The part of WorkerPool that gives batches to workers: new batches, and batches to be run again.

namespace service_streamer::ipc {
namespace {

constexpr Duration kCancelInterval = std::chrono::milliseconds(50);  // between two looks for batches to cancel

}  // namespace

TimePoint WorkerPool::serve(bool engine_changed) {
  // Sending a batch may show that its worker is dead. The batch then goes to another worker in the same call.
  for (;; engine_changed = false) {
    remove_broken();
    if (engine_changed) drop_ended_retries();
    for (const auto& [id, worker] : workers_) {
      worker->peer.flush_releases();
      tell_places(*worker);
      if (engine_changed || !worker->waiting || !retries_.empty()) give_batch(*worker);
      has_broken_ |= worker->peer.broken();
    }
    if (!has_broken_) break;
  }
  const TimePoint now = Clock::now();
  kill_hung(now);
  TimePoint next = TimePoint::max();
  for (const auto& [id, worker] : workers_) {
    if (worker->waiting) next = std::min(next, worker->until);
    if (worker->in_flight.empty()) continue;
    if (!worker->killed_hung && hang_timeout_ > Duration::zero()) {
      next = std::min(next, worker->in_flight.front()->sent + hang_timeout_);
    }
    if (places() > 0) {
      cancel_ended(*worker);
      next = std::min(next, now + kCancelInterval);
    }
  }
  return next;
}

void WorkerPool::tell_places(Worker& worker) {
  if (!worker.ready || worker.told_places == places()) return;
  worker.told_places = places();
  worker.peer.send(make_text(MessageType::kPlaces, {}, worker.told_places));
}

// Tells the worker which of its batches have only requests that have ended.
void WorkerPool::cancel_ended(Worker& worker) {
  std::vector<std::uint64_t> ids;
  for (const auto& in_flight : worker.in_flight) {
    if (in_flight->cancelled) continue;
    in_flight->cancelled = std::ranges::all_of(
        in_flight->batch.ranges, [this](const RequestRange& range) { return !engine_.running(*range.request); });
    if (in_flight->cancelled) ids.push_back(in_flight->id);
  }
  if (ids.empty()) return;
  worker.peer.send(make_ids(MessageType::kCancel, ids));
  has_broken_ |= worker.peer.broken();
}

// Gives the worker batches while it is free and one is due. Otherwise the engine counts a free worker as idle.
void WorkerPool::give_batch(Worker& worker) {
  while (worker.free(places())) {
    const ItemWeights live = live_items(worker);
    if (!retries_.empty()) {
      stop_waiting_for_batch(worker);
      const RequestRange& first = retries_.front()->batch.ranges.front();
      if (!live.have_room_for(first.request->weight(first.begin), limits_)) return;
      retry_batch(worker);
      continue;
    }
    CloseReason reason{};
    const Engine::Ready ready = engine_.start_waiting(worker.idle, reason, worker.until, live);
    worker.waiting = ready != Engine::Ready::kBatch;
    if (ready == Engine::Ready::kClosed) worker.until = TimePoint::max();
    if (worker.waiting) return;
    auto in_flight = std::make_unique<InFlightBatch>();
    EndedRequests expired;
    const bool any = engine_.cut(in_flight->batch, reason, expired, live);
    if (any) send(worker, std::move(in_flight));
    publish(expired);
  }
  if (worker.waiting) stop_waiting_for_batch(worker);  // it has fewer places now
}

// Of the batches that the worker has; nothing if it works on one at a time.
ItemWeights WorkerPool::live_items(const Worker& worker) const {
  ItemWeights live;
  if (places() == 0) return live;
  for (const auto& in_flight : worker.in_flight) {
    for (const RequestRange& range : in_flight->batch.ranges) live.add(range);
  }
  return live;
}

// Gives the worker the oldest batch that is to be run again. False: all requests of that batch have ended.
bool WorkerPool::retry_batch(Worker& worker) {
  std::unique_ptr<InFlightBatch> in_flight = std::move(retries_.front());
  retries_.erase(retries_.begin());
  if (!drop_ended(*in_flight)) return false;
  send(worker, std::move(in_flight));
  return true;
}

// Splits the batch of a worker that had no memory for it, to run its halves. False: the batch has one item only.
bool WorkerPool::retry_in_halves(std::unique_ptr<InFlightBatch>& in_flight) {
  auto first = std::make_unique<InFlightBatch>();
  retries_.reserve(retries_.size() + 2);  // before split(): afterwards nothing may throw
  const BatchCut cut = middle_of(in_flight->batch.ranges);
  if (cut.items == 0) return false;
  engine_.split(in_flight->batch, cut, first->batch);
  first->attempts = --in_flight->attempts;  // the worker did not run it
  retries_.insert(retries_.begin(), std::move(in_flight));
  retries_.insert(retries_.begin(), std::move(first));
  return true;
}

// The engine must get these batches back even if no worker is left: a caller may wait until all batches have ended.
void WorkerPool::drop_ended_retries() {
  std::erase_if(retries_, [this](const std::unique_ptr<InFlightBatch>& in_flight) { return !drop_ended(*in_flight); });
}

// Removes the requests that have ended. False: none is left, and the engine has the batch back.
bool WorkerPool::drop_ended(InFlightBatch& in_flight) {
  EndedRequests ended;
  ReleasedRequests released;
  engine_.drop_ended(in_flight.batch, ended, released);
  std::erase_if(in_flight.batch.ranges, [](const RequestRange& range) { return range.request == nullptr; });
  publish(ended);
  let_go(released);
  if (!in_flight.batch.ranges.empty()) return true;
  end(in_flight, Outcome::kAnswered, {});
  return false;
}

OutMessage WorkerPool::message_of(const InFlightBatch& in_flight) {
  std::vector<RangeHead> heads;
  std::vector<PayloadRange> items;
  heads.reserve(in_flight.batch.ranges.size());
  items.reserve(in_flight.batch.ranges.size());
  for (const RequestRange& range : in_flight.batch.ranges) {
    const Request& request = *range.request;
    heads.push_back({.items = range.count,
                     .deadline = request.deadline,
                     .whole = range.whole(),
                     .context = request.context,
                     .queue_time = request.taken - request.arrived});
    items.push_back(
        {.payload = &SerializedCall::of(*range.request).payload, .begin = range.begin, .count = range.count});
  }
  return make_batch(in_flight.id, {.reason = in_flight.batch.reason, .age = in_flight.batch.age}, heads, items);
}

void WorkerPool::send(Worker& worker, std::unique_ptr<InFlightBatch> in_flight) {
  in_flight->id = ++last_batch_id_;
  in_flight->cancelled = false;
  in_flight->sent = Clock::now();
  if (in_flight->attempts > 0) in_flight->batch.dispatched = in_flight->sent;
  OutMessage message;
  try {
    message = message_of(*in_flight);
  } catch (const std::bad_alloc&) {
    return end(*in_flight, Outcome::kLost, "there was no memory to send the batch to a worker");
  }
  InFlightBatch& sent = *in_flight;
  ++sent.attempts;
  worker.in_flight.push_back(std::move(in_flight));
  engine_.record_sent(sent.batch, static_cast<std::uint32_t>(worker.process.pid()));
  if (lone_ != nullptr && sent.is_alone(*lone_)) worker.peer.read(false);  // before there can be a reply
  worker.peer.send(std::move(message));
  if (!worker.peer.broken()) return;
  --sent.attempts;  // the worker was dead before it got the batch
  has_broken_ = true;
}

}  // namespace service_streamer::ipc
