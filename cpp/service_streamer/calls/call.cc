#include "service_streamer/calls/call.h"

#include <utility>

#include "service_streamer/batching/engine.h"

namespace service_streamer {

void Call::unref() {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

// --- Observers ---

// The value of first_ after notify(): no observer may be added any more.
Mailbox::Message* Observers::closed() {
  static Mailbox::Message sentinel{};
  return &sentinel;
}

Observers::~Observers() {
  Mailbox::Message* first = first_.load(std::memory_order_acquire);
  while (first != nullptr && first != closed()) delete std::exchange(first, first->next);
}

bool Observers::add(std::shared_ptr<Mailbox> mailbox, void* message) {
  if (first_.load(std::memory_order_acquire) == closed()) return false;
  auto observer = std::make_unique<Mailbox::Message>(Mailbox::Message{.to = std::move(mailbox), .value = message});
  observer->next = first_.load(std::memory_order_acquire);
  do {
    if (observer->next == closed()) return false;
  } while (!first_.compare_exchange_weak(observer->next, observer.get(), std::memory_order_acq_rel,
                                         std::memory_order_acquire));
  [[maybe_unused]] const Mailbox::Message* registered = observer.release();
  return true;
}

void Observers::notify() noexcept {
  Mailbox::Message* latest = first_.exchange(closed(), std::memory_order_acq_rel);
  Mailbox::Message* in_order = nullptr;
  while (latest != nullptr) {
    Mailbox::Message* next = std::exchange(latest->next, in_order);
    in_order = std::exchange(latest, next);
  }
  while (in_order != nullptr) {
    std::unique_ptr<Mailbox::Message> message(in_order);
    in_order = std::exchange(message->next, nullptr);
    Mailbox::post(std::move(message));
  }
}

// --- the last steps ---

namespace calls {
namespace {

void let_go(Request& request) {
  Call& call = Call::of(request);
  call.drop_inputs();
  call.unref();
}

}  // namespace

void publish(EndedRequests& ended, int batons) noexcept {
  if (ended.count == 0) return;
  EndedRequests in_order;  // those of a higher priority are first in a batch, and so are their answers
  while (Request* request = ended.pop()) in_order.push(*request);
  for (Request* request = in_order.first; request != nullptr; request = request->next_ended) {
    Call::of(*request).publish();
  }
  WakeQueue::instance().wake(batons);
  // Only now: dropping the last hold may free the request.
  while (Request* request = in_order.pop()) {
    if (request->drop_hold()) let_go(*request);
  }
}

TimePoint expire(Engine& engine, Waiter& waiter) {
  EndedRequests ended;
  const TimePoint next = engine.deadline_timer().watch(waiter, ended);
  publish(ended);
  return next;
}

void let_go(ReleasedRequests& released) {
  while (Request* request = released.pop()) let_go(*request);
}

}  // namespace calls

}  // namespace service_streamer
