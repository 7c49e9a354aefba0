#include "service_streamer/ipc/call.h"

#include <algorithm>
#include <utility>

namespace service_streamer::ipc {
namespace {

bool has_result(Outcome outcome) {
  return outcome == Outcome::kAnswered || outcome == Outcome::kFailed;
}

// Nobody works on it any more: what it was asked, and outputs that came too late, go even where the answer is kept.
void let_go(Request& request) {
  Call& call = Call::of(request);
  call.payload = {};
  if (!has_result(request.outcome)) call.pieces = {};
  call.unref();
}

}  // namespace

void Call::unref() {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

void Call::add(ResultPiece piece) {
  if (!pieces.empty() && pieces.front().result.kind == ResultKind::kError) return;
  if (piece.result.kind == ResultKind::kError) pieces.clear();
  const auto place = std::find_if(pieces.rbegin(), pieces.rend(),
                                  [&](const ResultPiece& earlier) { return earlier.begin < piece.begin; });
  pieces.insert(place.base(), std::move(piece));
}

// --- LocalCall ---

struct LocalCall::Observer {
  std::shared_ptr<Mailbox> mailbox;
  void* message;
  Observer* next;
};

// Stands in observers_ once nobody may register there any more.
LocalCall::Observer* LocalCall::closed() {
  static Observer sentinel{};
  return &sentinel;
}

LocalCall::~LocalCall() {
  Observer* first = observers_.load(std::memory_order_acquire);
  while (first != nullptr && first != closed()) delete std::exchange(first, first->next);
}

void LocalCall::publish(WakeChain& chain) {
  if (!has_result(request.outcome) && (travel_.fetch_or(kEnded, std::memory_order_acq_rel) & kHandedOn) != 0) {
    forwarder_->withdraw(id_, request.outcome);
  }
  chain.publish(request.completion);  // first: who may no longer observe must see the end
  Observer* latest = observers_.exchange(closed(), std::memory_order_acq_rel);
  Observer* in_order = nullptr;
  while (latest != nullptr) {
    Observer* next = std::exchange(latest->next, in_order);
    in_order = std::exchange(latest, next);
  }
  while (in_order != nullptr) {
    in_order->mailbox->post(in_order->message);
    delete std::exchange(in_order, in_order->next);
  }
}

bool LocalCall::observe(std::shared_ptr<Mailbox> mailbox, void* message) {
  if (observers_.load(std::memory_order_acquire) == closed()) return false;
  auto observer = std::make_unique<Observer>(Observer{std::move(mailbox), message, nullptr});
  observer->next = observers_.load(std::memory_order_acquire);
  do {
    if (observer->next == closed()) return false;
  } while (!observers_.compare_exchange_weak(observer->next, observer.get(), std::memory_order_acq_rel,
                                             std::memory_order_acquire));
  [[maybe_unused]] const Observer* registered = observer.release();
  return true;
}

std::uint64_t LocalCall::handed_on(const std::shared_ptr<Forwarder>& to, std::uint64_t id) {
  if (forwarder_ == nullptr) {
    forwarder_ = to;
    id_ = id;
  }
  if ((travel_.fetch_or(kHandedOn, std::memory_order_acq_rel) & kEnded) != 0) {
    forwarder_->withdraw(id_, request.outcome);
  }
  return id_;
}

std::uint64_t LocalCall::handed_on_as() const {
  return (travel_.load(std::memory_order_acquire) & kHandedOn) != 0 ? id_ : 0;
}

// --- the last step ---

void publish(EndedRequests& ended) {
  if (ended.count == 0) return;
  WakeChain chain(ended.count);
  EndedRequests in_order;
  while (Request* request = ended.pop()) {
    Call::of(*request).publish(chain);
    in_order.push(*request);
  }
  chain.wake();
  while (Request* request = in_order.pop()) {
    if (request->drop_hold()) let_go(*request);
  }
}

void let_go(ReleasedRequests& released) {
  while (Request* request = released.pop()) let_go(*request);
}

}  // namespace service_streamer::ipc
