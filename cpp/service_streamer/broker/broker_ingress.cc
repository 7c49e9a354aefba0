#include "service_streamer/broker/broker_ingress.h"

#include <algorithm>
#include <string>
#include <utility>

#include "service_streamer/base/file_descriptor.h"
#include "service_streamer/wire/broker_body.h"

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

void Inlet::submit(std::span<Submission> submissions) {
  const bool alone = submissions.size() == 1 && engine_.requests() == 0;
  std::vector<RemoteCall*> calls;  // a reference each
  calls.reserve(submissions.size());
  for (Submission& submission : submissions) calls.push_back(make_call(submission));
  register_all(submissions, calls);
  std::vector<Waiter*> to_wake;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (calls[i] == nullptr || enter(*calls[i], to_wake)) continue;
    submissions[i].submitted = Submitted::kClosed;
    std::exchange(calls[i], nullptr)->unref();
  }
  for (Waiter* waiter : to_wake) alone ? server_.wake(*waiter) : waiter->parker.unpark();
  std::erase(calls, nullptr);
  have_entered(calls);
  for (RemoteCall* call : calls) {
    server_.check_failure(call->request);
    call->unref();
  }
}

// nullptr: it is malformed.
RemoteCall* Inlet::make_call(Submission& submission) {
  Payload payload;
  if (!parse_request(submission.body, payload)) {
    submission.submitted = Submitted::kMalformed;
    return nullptr;
  }
  submission.items = static_cast<std::uint32_t>(payload.items());
  auto* call = new RemoteCall(answers_, kNoClient, submission.head.id);
  call->request.size = submission.items;
  call->request.priority = submission.head.priority;
  call->request.deadline = submission.head.deadline;
  call->payload = std::move(payload);
  return call;
}

// Those that cannot be are dropped.
void Inlet::register_all(std::span<Submission> submissions, std::span<RemoteCall*> calls) {
  MutexLock lock(mutex_);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    RemoteCall*& call = calls[i];
    if (call == nullptr) continue;
    const bool fresh = !stopped_ && held_.try_emplace(call->id(), Held{.call = call}).second;
    if (fresh) {
      call->ref();  // of held_
    } else {
      submissions[i].submitted = stopped_ ? Submitted::kClosed : Submitted::kKnown;
      std::exchange(call, nullptr)->unref();
    }
  }
}

// False: the engine is closed.
bool Inlet::enter(RemoteCall& call, std::vector<Waiter*>& to_wake) {
  call.ref();  // the engine's
  Waiter* waiter = nullptr;
  switch (engine_.submit_accepted(call.request, &waiter)) {
    case Engine::Admission::kQueued:
    case Engine::Admission::kWaiting:
      break;
    case Engine::Admission::kFull:
    case Engine::Admission::kClosed:
      call.unref();
      forget(call);
      return false;
  }
  if (waiter != nullptr && std::find(to_wake.begin(), to_wake.end(), waiter) == to_wake.end()) {
    to_wake.push_back(waiter);
  }
  return true;
}

// From here on they can be cancelled; deals with cancels that came before.
void Inlet::have_entered(std::span<RemoteCall* const> calls) {
  std::vector<RemoteCall*> cancelled;
  {
    MutexLock lock(mutex_);
    for (RemoteCall* call : calls) {
      const auto found = held_.find(call->id());  // or it has ended, was taken, and its number may have come again
      if (found == held_.end() || found->second.call != call) continue;
      found->second.entered = true;
      if (found->second.cancelled) collect(found->second, cancelled);
    }
  }
  end_all(cancelled);
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
