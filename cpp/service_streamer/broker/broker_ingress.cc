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
EndedCall end_of(ClientCall& call) {
  EndedCall end = call.take_end();
  std::string reason = why_no_body(end);
  if (end.outcome == Outcome::kFailed && end.pieces.size() != 1) reason = "it failed without an error";
  if (!reason.empty()) end = {.id = end.id, .outcome = Outcome::kLost, .note = std::move(reason), .pieces = {}};
  return end;
}

}  // namespace

BrokerIngress::BrokerIngress(Engine& engine, Server& server)
    : engine_(engine),
      server_(server),
      generation_(ForkLock::generation()),
      waiter_(WaiterPool::acquire()),
      ended_calls_(std::make_shared<EndedCalls>(waiter_)) {}

// In a forked child whatever another thread held is held for ever.
BrokerIngress::~BrokerIngress() {
  if (generation_ != ForkLock::generation()) return;
  stop();
  ended_calls_->close();
  {
    MutexLock lock(mutex_);
    for (const auto& [id, held] : held_) held.call->unref();
  }
  WaiterPool::release(waiter_);
}

// --- any thread ---

void BrokerIngress::submit(std::span<Submission> submissions) {
  std::vector<ClientCall*> calls;  // a reference each
  calls.reserve(submissions.size());
  for (Submission& submission : submissions) calls.push_back(make_call(submission));
  register_all(submissions, calls);
  std::erase(calls, nullptr);
  if (enter(calls)) {
    have_entered(calls);
    for (ClientCall* call : calls) server_.check_failure(call->request);
  } else {
    for (Submission& submission : submissions) {
      if (submission.submitted == Submitted::kYes) submission.submitted = Submitted::kClosed;
    }
  }
  for (ClientCall* call : calls) call->unref();
}

// nullptr: it is malformed.
ClientCall* BrokerIngress::make_call(Submission& submission) {
  Payload payload;
  if (!parse_request(submission.body, payload)) {
    submission.submitted = Submitted::kMalformed;
    return nullptr;
  }
  submission.items = static_cast<std::uint32_t>(payload.items());
  auto* call = new ClientCall(ended_calls_, kNoClient, submission.head.id);
  call->request.size = submission.items;
  call->request.priority = submission.head.priority;
  call->request.deadline = submission.head.deadline;
  call->payload = std::move(payload);
  return call;
}

// Those that cannot be are dropped.
void BrokerIngress::register_all(std::span<Submission> submissions, std::span<ClientCall*> calls) {
  MutexLock lock(mutex_);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    ClientCall*& call = calls[i];
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
bool BrokerIngress::enter(std::span<ClientCall* const> calls) {
  std::vector<Request*> requests;
  requests.reserve(calls.size());
  for (ClientCall* call : calls) {
    call->ref();  // the engine's
    requests.push_back(&call->request);
  }
  if (engine_.submit_accepted(requests)) return true;
  for (ClientCall* call : calls) {
    call->unref();
    forget(*call);
  }
  return false;
}

// From here on they can be cancelled; deals with cancels that came before.
void BrokerIngress::have_entered(std::span<ClientCall* const> calls) {
  std::vector<ClientCall*> cancelled;
  {
    MutexLock lock(mutex_);
    for (ClientCall* call : calls) {
      const auto found = held_.find(call->id());  // or it has ended, was taken, and its number may have come again
      if (found == held_.end() || found->second.call != call) continue;
      found->second.entered = true;
      if (found->second.cancelled) collect(found->second, cancelled);
    }
  }
  end_all(cancelled);
}

void BrokerIngress::forget(ClientCall& call) {
  {
    MutexLock lock(mutex_);
    held_.erase(call.id());
  }
  call.unref();
  waiter_.parker.unpark();  // it may have been the last one
}

void BrokerIngress::cancel(std::span<const std::uint64_t> ids) {
  std::vector<ClientCall*> to_cancel;
  {
    MutexLock lock(mutex_);
    for (const std::uint64_t id : ids) {
      const auto found = held_.find(id);
      if (found != held_.end()) collect(found->second, to_cancel);
    }
  }
  end_all(to_cancel);
}

void BrokerIngress::interrupt() {
  interrupted_.store(true, std::memory_order_release);
  waiter_.parker.unpark();
}

void BrokerIngress::stop() {
  std::vector<ClientCall*> to_cancel;
  {
    MutexLock lock(mutex_);
    if (std::exchange(stopped_, true)) return;
    for (auto& [id, held] : held_) collect(held, to_cancel);
  }
  end_all(to_cancel);
  waiter_.parker.unpark();
}

void BrokerIngress::collect(Held& held, std::vector<ClientCall*>& to_cancel) {
  held.cancelled = true;
  if (!held.entered) return;
  held.call->ref();
  to_cancel.push_back(held.call);
}

void BrokerIngress::end_all(const std::vector<ClientCall*>& calls) {
  EndedRequests ended;
  for (ClientCall* call : calls) engine_.end_early(call->request, Outcome::kCancelled, true, ended);
  publish(ended);
  for (ClientCall* call : calls) call->unref();
}

// --- one thread ---

BrokerIngress::Got BrokerIngress::take(TimePoint deadline, std::vector<EndedCall>& ended) {
  for (;;) {
    const bool interrupted = interrupted_.exchange(false, std::memory_order_acq_rel);
    take_ended(ended);
    if (!ended.empty()) return Got::kSomething;
    if (finished()) return Got::kStopped;
    if (interrupted || Clock::now() >= deadline) return Got::kNothing;
    if (waiter_.parker.park(deadline) == Parker::Wake::kInterrupted) return Got::kInterrupted;
  }
}

void BrokerIngress::take_ended(std::vector<EndedCall>& ended) {
  const std::vector<ClientCall*> calls = ended_calls_->take();
  ended.reserve(calls.size());
  for (ClientCall* call : calls) ended.push_back(end_of(*call));
  {
    MutexLock lock(mutex_);
    for (const ClientCall* call : calls) held_.erase(call->id());
  }
  for (ClientCall* call : calls) {
    call->unref();
    call->unref();  // of held_
  }
}

bool BrokerIngress::finished() const {
  MutexLock lock(mutex_);
  return stopped_ && held_.empty();
}

}  // namespace service_streamer::ipc
