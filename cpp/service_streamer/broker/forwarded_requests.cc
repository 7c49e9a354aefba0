#include "service_streamer/broker/forwarded_requests.h"

#include <algorithm>
#include <new>
#include <utility>

namespace service_streamer::ipc {

ForwardedRequests::ForwardedRequests(Engine& engine, Waiter& to_wake, std::uint32_t chunk_size)
    : engine_(engine), waiter_(to_wake), chunk_size_(chunk_size) {}

// --- the thread that calls BrokerEgress::take() ---

void ForwardedRequests::add(const Batch& batch) {
  struct Added {
    LocalCall* call;
    std::shared_ptr<const Payload> payload;
    std::uint64_t id = 0;
  };
  std::vector<Added> all;
  all.reserve(batch.ranges.size());
  for (const RequestRange& range : batch.ranges) {
    auto* call = static_cast<LocalCall*>(&SerializedCall::of(*range.request));
    call->ref();  // once it is in requests_, another thread may end it
    all.push_back({.call = call, .payload = std::make_shared<const Payload>(std::move(call->payload))});
  }
  Deferred deferred;
  {
    MutexLock lock(mutex_);
    for (Added& added : all) {
      if (closed_) {
        deferred.returned.push_back({.request = &added.call->request, .outcome = Outcome::kClosed});
        continue;
      }
      const std::uint32_t items = added.call->request.size;
      ForwardedRequest forwarded{.call = added.call, .payload = added.payload, .chunks_answered = {}};
      if (items > chunk_size_) forwarded.chunks_answered.resize((items - 1) / chunk_size_ + 1);
      added.id = ++last_id_;
      requests_.emplace(added.id, std::move(forwarded));
      Lane& lane = to_take_[added.call->request.priority];
      lane.ids.push_back(added.id);
      lane.items += items;
    }
  }
  for (const Added& added : all) {
    if (added.id != 0) {
      // Without the lock: for a call that was cancelled meanwhile, this calls cancel().
      added.call->forwarded(shared_from_this(), added.id);
      if (too_large(*added.payload)) {
        lose({&added.id, 1}, "the items of a message have more than " + std::to_string(kMaxBodyBytes) +
                                 " bytes: send fewer items at once");
      }
    }
    added.call->unref();
  }
  run(deferred);
}

void ForwardedRequests::take(std::size_t limit, std::int64_t least_priority, Taken& taken) {
  MutexLock lock(mutex_);
  std::size_t items = 0;
  while (items < limit && !to_take_.empty() && to_take_.begin()->first >= least_priority) {
    Lane& lane = to_take_.begin()->second;
    if (lane.ids.empty()) {
      to_take_.erase(to_take_.begin());
      continue;
    }
    const auto found = requests_.find(lane.ids.front());
    if (found == requests_.end()) {
      lane.ids.pop_front();
      continue;
    }
    ForwardedRequest& forwarded = found->second;
    const std::uint32_t chunk = chunk_at(forwarded, forwarded.taken);
    taken.chunks.push_back(chunk_of(found->first, forwarded, forwarded.taken, chunk));
    forwarded.taken += chunk;
    items += chunk;
    lane.items -= chunk;
    if (forwarded.taken == forwarded.call->request.size) lane.ids.pop_front();
  }
  taken.cancelled = std::exchange(cancelled_, {});
  taken.in_flight = requests_.size();
}

ForwardedRequests::Wanted ForwardedRequests::wanted(std::size_t limit, std::int64_t least_priority) const {
  Wanted wanted{.items = limit, .least_priority = least_priority};
  MutexLock lock(mutex_);
  for (const auto& [priority, lane] : to_take_) {
    if (priority < least_priority) break;
    if (lane.items >= wanted.items) {
      wanted.least_priority = std::int64_t{priority} + 1;
      break;
    }
    wanted.items -= lane.items;
  }
  return wanted;
}

// --- any thread ---

std::size_t ForwardedRequests::answer(std::span<const Answer> answers) {
  std::vector<EndedCall> results(answers.size());
  std::vector<bool> valid(answers.size());
  // Without the lock: parsing is most of the work, and other threads submit and cancel meanwhile.
  for (std::size_t i = 0; i < answers.size(); ++i) {
    valid[i] = parse_result(answers[i].body, answers[i].items, results[i]);
  }
  std::size_t taken = 0;
  Deferred deferred;
  deferred.returned.reserve(answers.size());  // a failed allocation must not lose a request that was erased
  {
    MutexLock lock(mutex_);
    for (std::size_t i = 0; i < answers.size(); ++i) {
      const auto found = requests_.find(answers[i].id);
      if (found == requests_.end() || !waits_for(found->second, answers[i])) continue;
      take_answer(found, answers[i], valid[i], results[i], deferred);
      ++taken;
    }
  }
  run(deferred);
  return taken;
}

void ForwardedRequests::lose(std::span<const std::uint64_t> ids, const std::string& note) {
  Deferred deferred;
  {
    MutexLock lock(mutex_);
    for (const std::uint64_t id : ids) {
      const auto found = requests_.find(id);
      if (found == requests_.end()) continue;
      found->second.call->note = note;
      erase(found, Outcome::kLost, deferred);
    }
  }
  run(deferred);
}

bool ForwardedRequests::fail(std::uint64_t id, const Bytes& error) {
  Deferred deferred;
  {
    MutexLock lock(mutex_);
    const auto found = requests_.find(id);
    if (found == requests_.end()) return false;
    LocalCall& call = *found->second.call;
    call.add(
        {.begin = 0, .count = call.request.size, .result = {.kind = ResultKind::kError, .bytes = error, .blocks = {}}});
    erase(found, Outcome::kFailed, deferred);
  }
  run(deferred);
  return true;
}

void ForwardedRequests::unanswered(std::span<const std::uint64_t> ids, std::vector<Chunk>& chunks) const {
  MutexLock lock(mutex_);
  for (const std::uint64_t id : ids) {
    const auto found = requests_.find(id);
    if (found == requests_.end()) continue;
    const ForwardedRequest& forwarded = found->second;
    for (std::uint32_t begin = 0; begin < forwarded.taken; begin += chunk_at(forwarded, begin)) {
      if (!forwarded.chunks_answered.empty() && forwarded.chunks_answered[begin / chunk_size_]) continue;
      chunks.push_back(chunk_of(id, forwarded, begin, chunk_at(forwarded, begin)));
    }
  }
}

std::size_t ForwardedRequests::in_flight() const {
  MutexLock lock(mutex_);
  return requests_.size();
}

void ForwardedRequests::close() {
  Deferred deferred;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    while (!requests_.empty()) erase(requests_.begin(), Outcome::kClosed, deferred);
    cancelled_.clear();
  }
  run(deferred);
}

// The request has ended in the engine, and only the engine's hold must be given back. Not found: it ended here first.
void ForwardedRequests::cancel(std::uint64_t id, Outcome outcome) noexcept {
  Deferred deferred;
  try {
    deferred.returned.reserve(1);
    MutexLock lock(mutex_);
    const auto found = requests_.find(id);
    if (found == requests_.end()) return;
    end(found, outcome, deferred);
  } catch (const std::bad_alloc&) {
    return;  // its answer gives the hold back
  }
  run(deferred);
}

// --- chunks and ends ---

std::uint32_t ForwardedRequests::chunk_at(const ForwardedRequest& forwarded, std::uint32_t begin) const {
  return std::min(chunk_size_, forwarded.call->request.size - begin);
}

bool ForwardedRequests::waits_for(const ForwardedRequest& forwarded, const Answer& answer) const {
  if (answer.begin >= forwarded.taken || answer.begin % chunk_size_ != 0) return false;
  if (answer.items != chunk_at(forwarded, answer.begin)) return false;
  return forwarded.chunks_answered.empty() || !forwarded.chunks_answered[answer.begin / chunk_size_];
}

Chunk ForwardedRequests::chunk_of(std::uint64_t id, const ForwardedRequest& forwarded, std::uint32_t begin,
                                  std::uint32_t items) {
  const Request& request = forwarded.call->request;
  return {.id = id,
          .begin = begin,
          .items = items,
          .deadline = request.deadline,
          .priority = request.priority,
          .payload = forwarded.payload,
          .context = request.context,
          .traits = request.traits};
}

bool ForwardedRequests::too_large(const Payload& payload) const {
  if (payload.begin_of(payload.items()) <= kMaxBodyBytes) return false;
  for (std::size_t begin = 0; begin < payload.items(); begin += chunk_size_) {
    const std::size_t end = std::min(payload.items(), begin + chunk_size_);
    if (payload.begin_of(end) - payload.begin_of(begin) > kMaxBodyBytes) return true;
  }
  return false;
}

void ForwardedRequests::take_answer(RequestMap::iterator found, const Answer& answer, bool valid, EndedCall& result,
                                    Deferred& deferred) {
  ForwardedRequest& forwarded = found->second;
  LocalCall& call = *forwarded.call;
  if (!valid || result.outcome == Outcome::kLost) {
    call.note = valid ? std::move(result.note)
                      : "the answer to request " + std::to_string(answer.id) + " (" + std::to_string(answer.items) +
                            " items from number " + std::to_string(answer.begin) + ") is corrupt";
    return end(found, Outcome::kLost, deferred);
  }
  if (result.outcome == Outcome::kRefused) {
    call.request.retry_after = retry_after(result.note);
    return end(found, Outcome::kRefused, deferred);
  }
  for (ResultRange& range : result.ranges) {
    const bool failed = result.outcome == Outcome::kFailed;
    call.add({.begin = answer.begin + (failed ? 0 : range.begin),
              .count = failed ? answer.items : range.count,
              .result = std::move(range.result)});
  }
  if (!forwarded.chunks_answered.empty()) forwarded.chunks_answered[answer.begin / chunk_size_] = true;
  forwarded.answered += answer.items;
  if (result.outcome == Outcome::kFailed) return end(found, Outcome::kFailed, deferred);
  if (forwarded.answered == call.request.size) end(found, Outcome::kAnswered, deferred);
}

// Ends a request. If a chunk of it is not answered, take() returns it as cancelled.
void ForwardedRequests::end(RequestMap::iterator found, Outcome outcome, Deferred& deferred) {
  if (found->second.taken > found->second.answered) {
    deferred.wake = deferred.wake || cancelled_.empty();
    cancelled_.push_back(found->first);
  }
  erase(found, outcome, deferred);
}

void ForwardedRequests::erase(RequestMap::iterator found, Outcome outcome, Deferred& deferred) {
  Request& request = found->second.call->request;
  if (found->second.taken < request.size) to_take_.at(request.priority).items -= request.size - found->second.taken;
  deferred.returned.push_back({.request = &request, .outcome = outcome});
  requests_.erase(found);
  if (requests_.empty() && engine_.closed()) deferred.wake = true;
}

void ForwardedRequests::run(const Deferred& deferred) {
  if (!deferred.returned.empty()) {
    EndedRequests ended;
    ReleasedRequests released;
    engine_.take_back(deferred.returned, ended, released);
    publish(ended);
    let_go(released);
  }
  if (deferred.wake) waiter_.parker.unpark();
}

}  // namespace service_streamer::ipc
