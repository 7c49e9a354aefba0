#include "service_streamer/broker/broker_ingress.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "service_streamer/base/file_descriptor.h"
#include "service_streamer/wire/broker_body.h"

namespace service_streamer::ipc {
namespace {

constexpr std::uint64_t kNoClient = 0;

// Returns the end of a call, as a loss if its result cannot be encoded as a body, or there is no memory.
EndedCall portable_result(ClientCall& call) noexcept try {
  EndedCall end = call.take_end();
  std::string reason = encoding_error(end);
  if (end.outcome == Outcome::kFailed && end.ranges.size() != 1) reason = "the request failed without an error";
  if (!reason.empty()) end = {.id = end.id, .outcome = Outcome::kLost, .note = std::move(reason), .ranges = {}};
  return end;
} catch (const std::bad_alloc&) {
  return {.id = call.id(), .outcome = Outcome::kLost, .note = "out of memory", .ranges = {}};  // allocates nothing
}

}  // namespace

BrokerIngress::BrokerIngress(Engine& engine, Server& server)
    : engine_(engine),
      server_(server),
      generation_(ForkLock::generation()),
      waiter_(WaiterPool::acquire()),
      ended_calls_(std::make_shared<EndedCalls>(waiter_)) {}

// In a forked child a mutex may be locked forever, so no call is freed there.
BrokerIngress::~BrokerIngress() {
  if (generation_ != ForkLock::generation()) {
    for (auto& [id, active] : active_) keep(std::move(active.call));
    return;
  }
  stop();
  ended_calls_->close();
  WaiterPool::release(waiter_);
}

// --- any thread ---

void BrokerIngress::submit(std::span<Submission> submissions) {
  Calls calls;
  calls.reserve(submissions.size());
  for (Submission& submission : submissions) calls.push_back(make_call(submission));
  bool submitted = false;
  try {
    // Before the engine has them: a worker may answer at once, and take() removes the answered ones.
    add_active(submissions, calls);
    std::erase(calls, nullptr);
    submitted = submit_to_engine(calls);
  } catch (const std::bad_alloc&) {
    remove_active(calls);
    throw;
  }
  if (submitted) {
    mark_in_engine(calls);
    for (const ClientCallRef& call : calls) server_.check_failure(call->request);
    return;
  }
  remove_active(calls);
  for (Submission& submission : submissions) {
    if (submission.submitted == SubmitStatus::kAccepted) submission.submitted = SubmitStatus::kClosed;
  }
}

// Returns nullptr if the body is malformed, or the engine has no share for the tenant.
ClientCallRef BrokerIngress::make_call(Submission& submission) {
  Payload payload;
  TraceContext context;
  TraitsRef traits;
  if (!parse_request(submission.body, payload, context, traits)) {
    submission.submitted = SubmitStatus::kMalformed;
    return nullptr;
  }
  submission.items = static_cast<std::uint32_t>(payload.items());
  ClientCallRef call(new ClientCall(ended_calls_, kNoClient, submission.head.id));
  call->request.size = submission.items;
  call->request.priority = submission.head.priority;
  call->request.deadline = submission.head.deadline;
  call->request.sent = submission.head.sent;
  call->request.context = std::move(context);
  call->request.traits = std::move(traits);
  call->payload = std::move(payload);
  if (engine_.knows_tenant(call->request)) return call;
  submission.submitted = SubmitStatus::kUnknownTenant;
  submission.tenant = call->request.tenant();
  return nullptr;
}

// Adds the calls to active_. Duplicates, and all calls after stop(), become nullptr.
void BrokerIngress::add_active(std::span<Submission> submissions, Calls& calls) {
  MutexLock lock(mutex_);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (calls[i] == nullptr) continue;
    ActiveCall active{.call = new_ref(*calls[i])};
    if (stopped_ || !active_.try_emplace(calls[i]->id(), std::move(active)).second) {
      submissions[i].submitted = stopped_ ? SubmitStatus::kClosed : SubmitStatus::kDuplicate;
      calls[i] = nullptr;
    }
  }
}

// False: the engine is closed. If it throws, the engine has taken none.
bool BrokerIngress::submit_to_engine(const Calls& calls) {
  std::vector<Request*> requests;
  Calls of_engine;
  requests.reserve(calls.size());
  of_engine.reserve(calls.size());
  for (const ClientCallRef& call : calls) {
    requests.push_back(&call->request);
    of_engine.push_back(new_ref(*call));
  }
  EndedRequests refused;
  if (!engine_.submit_accepted(requests, refused)) return false;
  for (ClientCallRef& call : of_engine) keep(std::move(call));
  if (refused.count > 0) engine_.end_hopeless(refused);
  publish(refused);
  return true;
}

// From here on calls can be cancelled in the engine. Cancels calls for which cancel() came earlier.
void BrokerIngress::mark_in_engine(const Calls& calls) {
  Calls cancelled;
  {
    MutexLock lock(mutex_);
    for (const ClientCallRef& call : calls) {
      // The call may have been taken already, and another request with the same id submitted.
      const auto found = active_.find(call->id());
      if (found == active_.end() || found->second.call != call) continue;
      found->second.in_engine = true;
      if (found->second.cancelled) request_cancel(found->second, cancelled);
    }
  }
  cancel_all(cancelled);
}

void BrokerIngress::remove_active(const Calls& calls) {
  {
    MutexLock lock(mutex_);
    for (const ClientCallRef& call : calls) {
      const auto found = call != nullptr ? active_.find(call->id()) : active_.end();
      if (found != active_.end() && found->second.call == call) active_.erase(found);
    }
  }
  waiter_.parker.unpark();  // if one was the last one, take() must return kStopped
}

void BrokerIngress::cancel(std::span<const std::uint64_t> ids) {
  Calls to_cancel;
  {
    MutexLock lock(mutex_);
    for (const std::uint64_t id : ids) {
      const auto found = active_.find(id);
      if (found != active_.end()) request_cancel(found->second, to_cancel);
    }
  }
  cancel_all(to_cancel);
}

void BrokerIngress::interrupt() {
  interrupted_.store(true, std::memory_order_release);
  waiter_.parker.unpark();
}

void BrokerIngress::stop() {
  Calls to_cancel;
  {
    MutexLock lock(mutex_);
    if (std::exchange(stopped_, true)) return;
    for (auto& [id, active] : active_) request_cancel(active, to_cancel);
  }
  cancel_all(to_cancel);
  waiter_.parker.unpark();
}

void BrokerIngress::request_cancel(ActiveCall& active, Calls& to_cancel) {
  active.cancelled = true;
  if (active.in_engine) to_cancel.push_back(new_ref(*active.call));
}

void BrokerIngress::cancel_all(const Calls& calls) {
  EndedRequests ended;
  for (const ClientCallRef& call : calls) engine_.end_early(call->request, Outcome::kCancelled, true, ended);
  publish(ended);
}

// --- one thread ---

BrokerIngress::TakeStatus BrokerIngress::take(TimePoint deadline, std::vector<EndedCall>& ended) {
  for (;;) {
    const bool interrupted = interrupted_.exchange(false, std::memory_order_acq_rel);
    take_ended(ended);
    if (!ended.empty()) return TakeStatus::kTaken;
    if (finished()) return TakeStatus::kStopped;
    if (interrupted || Clock::now() >= deadline) return TakeStatus::kNothing;
    if (waiter_.parker.park(deadline) == Parker::Wake::kInterrupted) return TakeStatus::kInterrupted;
  }
}

void BrokerIngress::take_ended(std::vector<EndedCall>& ended) {
  ended.reserve(ended.size() + ended_calls_->count());  // before they are taken: nothing is lost if it throws
  EndedCallChain calls = ended_calls_->take(ended.capacity() - ended.size());
  while (const ClientCallRef call = calls.pop()) {
    ended.push_back(portable_result(*call));
    engine_.replied(call->request, Clock::now());
    MutexLock lock(mutex_);
    active_.erase(call->id());
  }
}

bool BrokerIngress::finished() const {
  MutexLock lock(mutex_);
  return stopped_ && active_.empty();
}

}  // namespace service_streamer::ipc
