#include "service_streamer/ipc/inlet.h"

#include <string>
#include <utility>

#include "service_streamer/base/file_descriptor.h"
#include "service_streamer/ipc/parcel.h"

namespace service_streamer::ipc {
namespace {

constexpr std::uint64_t kNoClient = 0;

// As it can be told in a body.
EndedCall end_of(RemoteCall& call) {
  EndedCall end = call.take_end();
  std::string reason = why_no_body(end);
  if (end.outcome == Outcome::kFailed && end.pieces.size() != 1) reason = "it failed without an error";
  if (!reason.empty()) end = {.id = end.id, .outcome = Outcome::kLost, .note = std::move(reason), .pieces = {}};
  return end;
}

}  // namespace

Inlet::Inlet(Engine& engine, Server& server)
    : engine_(engine),
      server_(server),
      generation_(ForkLock::generation()),
      waiter_(WaiterPool::acquire()),
      answers_(std::make_shared<Answers>(waiter_)) {}

// In a forked child whatever another thread held is held for ever.
Inlet::~Inlet() {
  if (generation_ != ForkLock::generation()) return;
  stop();
  answers_->close();
  {
    MutexLock lock(mutex_);
    for (const auto& [id, held] : held_) held.call->unref();
  }
  WaiterPool::release(waiter_);
}

// --- any thread ---

Inlet::Submitted Inlet::submit(const SubmitHead& head, const Bytes& body, std::uint32_t& items) {
  Payload payload;
  if (!parse_request(body, payload)) return Submitted::kMalformed;
  items = static_cast<std::uint32_t>(payload.items());
  auto* call = new RemoteCall(answers_, kNoClient, head.id);
  call->request.size = items;
  call->request.priority = head.priority;
  call->request.deadline = head.deadline;
  call->payload = std::move(payload);
  Submitted submitted = Submitted::kYes;
  {
    MutexLock lock(mutex_);
    if (stopped_) {
      submitted = Submitted::kClosed;
    } else if (!held_.try_emplace(head.id, Held{.call = call}).second) {
      submitted = Submitted::kKnown;
    } else {
      call->ref();  // of held_
    }
  }
  if (submitted == Submitted::kYes) {
    call->ref();  // the engine's
    switch (engine_.submit_accepted(call->request)) {
      case Engine::Admission::kQueued:
      case Engine::Admission::kWaiting:
        enter(*call);
        break;
      case Engine::Admission::kFull:
      case Engine::Admission::kClosed:
        call->unref();
        forget(*call);
        submitted = Submitted::kClosed;
    }
  }
  call->unref();
  return submitted;
}

// From here on it can be cancelled; deals with a cancel that came before.
void Inlet::enter(RemoteCall& call) {
  bool cancelled = false;
  {
    MutexLock lock(mutex_);
    const auto found = held_.find(call.id());  // or it has ended, was taken, and its number may have come again
    if (found != held_.end() && found->second.call == &call) {
      found->second.entered = true;
      cancelled = found->second.cancelled;
    }
  }
  if (cancelled) {
    EndedRequests ended;
    engine_.end_early(call.request, Outcome::kCancelled, true, ended);
    publish(ended);
  }
  server_.check_failure(call.request);
}

void Inlet::forget(RemoteCall& call) {
  {
    MutexLock lock(mutex_);
    held_.erase(call.id());
  }
  call.unref();
  waiter_.parker.unpark();  // it may have been the last one
}

void Inlet::cancel(std::span<const std::uint64_t> ids) {
  std::vector<RemoteCall*> to_cancel;
  {
    MutexLock lock(mutex_);
    for (const std::uint64_t id : ids) {
      const auto found = held_.find(id);
      if (found != held_.end()) collect(found->second, to_cancel);
    }
  }
  end_all(to_cancel);
}

void Inlet::interrupt() {
  interrupted_.store(true, std::memory_order_release);
  waiter_.parker.unpark();
}

void Inlet::stop() {
  std::vector<RemoteCall*> to_cancel;
  {
    MutexLock lock(mutex_);
    if (std::exchange(stopped_, true)) return;
    for (auto& [id, held] : held_) collect(held, to_cancel);
  }
  end_all(to_cancel);
  waiter_.parker.unpark();
}

void Inlet::collect(Held& held, std::vector<RemoteCall*>& to_cancel) {
  held.cancelled = true;
  if (!held.entered) return;
  held.call->ref();
  to_cancel.push_back(held.call);
}

void Inlet::end_all(const std::vector<RemoteCall*>& calls) {
  EndedRequests ended;
  for (RemoteCall* call : calls) engine_.end_early(call->request, Outcome::kCancelled, true, ended);
  publish(ended);
  for (RemoteCall* call : calls) call->unref();
}

// --- one thread ---

Inlet::Got Inlet::take(TimePoint deadline, std::vector<EndedCall>& ended) {
  for (;;) {
    const bool interrupted = interrupted_.exchange(false, std::memory_order_acq_rel);
    take_ended(ended);
    if (!ended.empty()) return Got::kSomething;
    if (finished()) return Got::kStopped;
    if (interrupted || Clock::now() >= deadline) return Got::kNothing;
    if (waiter_.parker.park(deadline) == Parker::Wake::kInterrupted) return Got::kInterrupted;
  }
}

void Inlet::take_ended(std::vector<EndedCall>& ended) {
  const std::vector<RemoteCall*> calls = answers_->take();
  ended.reserve(calls.size());
  for (RemoteCall* call : calls) ended.push_back(end_of(*call));
  {
    MutexLock lock(mutex_);
    for (const RemoteCall* call : calls) held_.erase(call->id());
  }
  for (RemoteCall* call : calls) {
    call->unref();
    call->unref();  // of held_
  }
}

bool Inlet::finished() const {
  MutexLock lock(mutex_);
  return stopped_ && held_.empty();
}

}  // namespace service_streamer::ipc
