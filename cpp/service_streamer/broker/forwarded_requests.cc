#include "service_streamer/broker/forwarded_requests.h"

#include <algorithm>
#include <utility>

namespace service_streamer::ipc {

ForwardedRequests::ForwardedRequests(Engine& engine, Waiter& to_wake, std::uint32_t chunk_size)
    : engine_(engine), waiter_(to_wake), chunk_size_(chunk_size) {}

// --- the thread that takes ---

void ForwardedRequests::add(const Batch& batch) {
  struct Added {
    LocalCall* call;
    std::shared_ptr<const Payload> payload;
    std::uint64_t id = 0;
  };
  std::vector<Added> all;
  all.reserve(batch.parts.size());
  for (const RequestRange& part : batch.parts) {
    auto* call = static_cast<LocalCall*>(&SerializedCall::of(*part.request));
    call->ref();  // from where it is in flights_ others may end it
    all.push_back({.call = call, .payload = std::make_shared<const Payload>(std::move(call->payload))});
  }
  Ends ends;
  {
    MutexLock lock(mutex_);
    for (Added& added : all) {
      if (closed_) {
        ends.returned.push_back({.request = &added.call->request, .outcome = Outcome::kClosed});
        continue;
      }
      const std::uint32_t items = added.call->request.size;
      Flight flight{.call = added.call, .payload = added.payload, .chunks_answered = {}};
      if (items > chunk_size_) flight.chunks_answered.resize((items - 1) / chunk_size_ + 1);
      added.id = ++last_id_;
      flights_.emplace(added.id, std::move(flight));
      to_take_.push_back(added.id);
      items_to_take_ += items;
    }
  }
  for (const Added& added : all) {
    if (added.id != 0) {
      added.call->forwarded(shared_from_this(), added.id);
      if (too_large(*added.payload)) {
        lose({&added.id, 1}, "the items of a message have more than " + std::to_string(kMaxBodyBytes) +
                                 " bytes: send fewer items at once");
      }
    }
    added.call->unref();
  }
  carry_out(ends);
}

void ForwardedRequests::take(std::size_t limit, Taken& taken) {
  MutexLock lock(mutex_);
  for (std::size_t items = 0; items < limit && !to_take_.empty();) {
    const auto found = flights_.find(to_take_.front());
    if (found == flights_.end()) {
      to_take_.pop_front();
      continue;
    }
    Flight& flight = found->second;
    const std::uint32_t chunk = chunk_at(flight, flight.out);
    taken.chunks.push_back(chunk_of(found->first, flight, flight.out, chunk));
    flight.out += chunk;
    items += chunk;
    items_to_take_ -= chunk;
    if (flight.out == flight.call->request.size) to_take_.pop_front();
  }
  taken.withdrawn = std::exchange(withdrawn_, {});
  taken.in_flight = flights_.size();
}

std::size_t ForwardedRequests::items_to_take() const {
  MutexLock lock(mutex_);
  return items_to_take_;
}

// --- any thread ---

std::size_t ForwardedRequests::answer(std::span<const Answer> answers) {
  std::vector<EndedCall> results(answers.size());
  std::vector<bool> sound(answers.size());
  for (std::size_t i = 0; i < answers.size(); ++i) {
    sound[i] = parse_result(answers[i].body, answers[i].items, results[i]);
  }
  std::size_t taken = 0;
  Ends ends;
  ends.returned.reserve(answers.size());  // nothing is forgotten for want of memory
  {
    MutexLock lock(mutex_);
    for (std::size_t i = 0; i < answers.size(); ++i) {
      const auto found = flights_.find(answers[i].id);
      if (found == flights_.end() || !waits_for(found->second, answers[i])) continue;
      take_answer(found, answers[i], sound[i], results[i], ends);
      ++taken;
    }
  }
  carry_out(ends);
  return taken;
}

void ForwardedRequests::lose(std::span<const std::uint64_t> ids, const std::string& note) {
  Ends ends;
  {
    MutexLock lock(mutex_);
    for (const std::uint64_t id : ids) {
      const auto found = flights_.find(id);
      if (found == flights_.end()) continue;
      found->second.call->note = note;
      erase(found, Outcome::kLost, ends);
    }
  }
  carry_out(ends);
}

bool ForwardedRequests::fail(std::uint64_t id, const Bytes& error) {
  Ends ends;
  {
    MutexLock lock(mutex_);
    const auto found = flights_.find(id);
    if (found == flights_.end()) return false;
    LocalCall& call = *found->second.call;
    call.add(
        {.begin = 0, .count = call.request.size, .result = {.kind = ResultKind::kError, .bytes = error, .blocks = {}}});
    erase(found, Outcome::kFailed, ends);
  }
  carry_out(ends);
  return true;
}

void ForwardedRequests::unanswered(std::span<const std::uint64_t> ids, std::vector<Chunk>& chunks) const {
  MutexLock lock(mutex_);
  for (const std::uint64_t id : ids) {
    const auto found = flights_.find(id);
    if (found == flights_.end()) continue;
    const Flight& flight = found->second;
    for (std::uint32_t begin = 0; begin < flight.out; begin += chunk_at(flight, begin)) {
      if (!flight.chunks_answered.empty() && flight.chunks_answered[begin / chunk_size_]) continue;
      chunks.push_back(chunk_of(id, flight, begin, chunk_at(flight, begin)));
    }
  }
}

std::size_t ForwardedRequests::in_flight() const {
  MutexLock lock(mutex_);
  return flights_.size();
}

void ForwardedRequests::close() {
  Ends ends;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    while (!flights_.empty()) erase(flights_.begin(), Outcome::kClosed, ends);
    withdrawn_.clear();
  }
  carry_out(ends);
}

// It has ended: only what the engine holds of it is to be given back. Comes too late for what was ended in here.
void ForwardedRequests::withdraw(std::uint64_t id, Outcome outcome) {
  Ends ends;
  {
    MutexLock lock(mutex_);
    const auto found = flights_.find(id);
    if (found == flights_.end()) return;
    end(found, outcome, ends);
  }
  carry_out(ends);
}

// --- what they are made of ---

std::uint32_t ForwardedRequests::chunk_at(const Flight& flight, std::uint32_t begin) const {
  return std::min(chunk_size_, flight.call->request.size - begin);
}

bool ForwardedRequests::waits_for(const Flight& flight, const Answer& answer) const {
  if (answer.begin >= flight.out || answer.begin % chunk_size_ != 0) return false;
  if (answer.items != chunk_at(flight, answer.begin)) return false;
  return flight.chunks_answered.empty() || !flight.chunks_answered[answer.begin / chunk_size_];
}

Chunk ForwardedRequests::chunk_of(std::uint64_t id, const Flight& flight, std::uint32_t begin, std::uint32_t items) {
  const Request& request = flight.call->request;
  return {.id = id,
          .begin = begin,
          .items = items,
          .deadline = request.deadline,
          .priority = request.priority,
          .payload = flight.payload};
}

bool ForwardedRequests::too_large(const Payload& payload) const {
  if (payload.begin_of(payload.items()) <= kMaxBodyBytes) return false;
  for (std::size_t begin = 0; begin < payload.items(); begin += chunk_size_) {
    const std::size_t end = std::min(payload.items(), begin + chunk_size_);
    if (payload.begin_of(end) - payload.begin_of(begin) > kMaxBodyBytes) return true;
  }
  return false;
}

void ForwardedRequests::take_answer(Flights::iterator found, const Answer& answer, bool sound, EndedCall& result,
                                    Ends& ends) {
  Flight& flight = found->second;
  LocalCall& call = *flight.call;
  if (!sound || result.outcome == Outcome::kLost) {
    call.note = sound ? std::move(result.note)
                      : "the answer to request " + std::to_string(answer.id) + " (" + std::to_string(answer.items) +
                            " items from number " + std::to_string(answer.begin) + ") is corrupt";
    return end(found, Outcome::kLost, ends);
  }
  for (ResultRange& piece : result.pieces) {
    const bool failed = result.outcome == Outcome::kFailed;
    call.add({.begin = answer.begin + (failed ? 0 : piece.begin),
              .count = failed ? answer.items : piece.count,
              .result = std::move(piece.result)});
  }
  if (!flight.chunks_answered.empty()) flight.chunks_answered[answer.begin / chunk_size_] = true;
  flight.answered += answer.items;
  if (result.outcome == Outcome::kFailed) return end(found, Outcome::kFailed, ends);
  if (flight.answered == call.request.size) end(found, Outcome::kAnswered, ends);
}

// Also to be withdrawn, if any of it is out.
void ForwardedRequests::end(Flights::iterator found, Outcome outcome, Ends& ends) {
  if (found->second.out > found->second.answered) {
    ends.wake = ends.wake || withdrawn_.empty();
    withdrawn_.push_back(found->first);
  }
  erase(found, outcome, ends);
}

void ForwardedRequests::erase(Flights::iterator found, Outcome outcome, Ends& ends) {
  Request& request = found->second.call->request;
  items_to_take_ -= request.size - found->second.out;
  ends.returned.push_back({.request = &request, .outcome = outcome});
  flights_.erase(found);
  if (flights_.empty() && engine_.closed()) ends.wake = true;
}

void ForwardedRequests::carry_out(const Ends& ends) {
  if (!ends.returned.empty()) {
    EndedRequests ended;
    ReleasedRequests released;
    engine_.take_back(ends.returned, ended, released);
    publish(ended);
    let_go(released);
  }
  if (ends.wake) waiter_.parker.unpark();
}

}  // namespace service_streamer::ipc
