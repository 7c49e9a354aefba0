#include "service_streamer/batching/idle_worker.h"

namespace service_streamer {

void WorkerWake::run() const {
  if (waiter == nullptr) return;
  behind ? WakeQueue::instance().wake_after(*behind, *waiter) : waiter->parker.unpark();
}

void Wakes::run() {
  worker.run();
  for (Waiter* waiter : others) waiter->parker.unpark();
}

}  // namespace service_streamer
