#include "service_streamer/server/worker_events.h"

#include <utility>

namespace service_streamer::ipc {

void WorkerEvents::post(Server::Event event) {
  Waiter* waiter;
  {
    MutexLock lock(mutex_);
    events_.push_back(std::move(event));
    waiter = waiter_;
  }
  if (waiter != nullptr) waiter->parker.unpark();
}

std::optional<Server::Event> WorkerEvents::next(Waiter& waiter, TimePoint deadline) {
  for (Parker::Wake wake = Parker::Wake::kUnparked;;) {
    {
      MutexLock lock(mutex_);
      waiter_ = nullptr;
      if (!events_.empty()) {
        Server::Event event = std::move(events_.front());
        events_.pop_front();
        return event;
      }
      if (std::exchange(interrupted_, false) || wake != Parker::Wake::kUnparked) return std::nullopt;
      waiter_ = &waiter;
    }
    wake = waiter.parker.park(deadline);
  }
}

void WorkerEvents::interrupt() {
  Waiter* waiter;
  {
    MutexLock lock(mutex_);
    interrupted_ = true;
    waiter = waiter_;
  }
  if (waiter != nullptr) waiter->parker.unpark();
}

}  // namespace service_streamer::ipc
