#include <atomic>
#include <new>

#include "service_streamer/base/file_descriptor.h"
#include "service_streamer/base/system.h"
#include "service_streamer/waiting/waiter.h"

namespace service_streamer {
namespace {

// A waiter with an eventfd. The eventfd is never closed, because a late wake-up may still be written to it.
struct EventWaiter : Waiter {
  explicit EventWaiter(const Event& opened)
      : Waiter(opened.writer), event(opened), generation(ForkLock::generation()) {}

  const Event event;
  const std::uint32_t generation;
  std::atomic<bool> in_use{true};
  EventWaiter* next = nullptr;
};

// All waiters with an eventfd, as a list that only grows. It has no lock, so a forked child cannot find it locked.
std::atomic<EventWaiter*> event_waiters{nullptr};

EventWaiter& make_event_waiter() {
  const Event event = open_event();
  auto* made = new (std::nothrow) EventWaiter(event);
  if (made == nullptr) {
    event.close();
    throw std::bad_alloc();
  }
  made->next = event_waiters.load(std::memory_order_relaxed);
  while (!event_waiters.compare_exchange_weak(made->next, made, std::memory_order_release)) {
  }
  return *made;
}

}  // namespace

Waiter& WaiterPool::acquire_with_event(int& event) {
  EventWaiter* waiter = event_waiters.load(std::memory_order_acquire);
  // Skip the waiters of the parent process: it uses their descriptors.
  while (waiter != nullptr &&
         (waiter->generation != ForkLock::generation() || waiter->in_use.exchange(true, std::memory_order_acquire))) {
    waiter = waiter->next;
  }
  if (waiter == nullptr) waiter = &make_event_waiter();
  event = waiter->event.reader;
  return *waiter;
}

void WaiterPool::release_with_event(Waiter& waiter) {
  static_cast<EventWaiter&>(waiter).in_use.store(false, std::memory_order_release);
}

}  // namespace service_streamer
