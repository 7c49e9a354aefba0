#pragma once

// The event loop of a simulated server that has a queue, a policy and workers. The events are arrivals, ends of batches
// and the timer of the policy, which is asked after each of them, as the engine does.

#include <algorithm>
#include <vector>

#include "service_streamer/base/clock.h"
#include "simulation/server.h"

namespace service_streamer::simulation {

// A subclass has the queue and the policy. `Batch` is what it remembers of a batch that a worker runs.
template <typename Batch>
class EventLoop {
 protected:
  struct Worker : Batch {
    bool busy = false;
    TimePoint start;
    TimePoint until;
  };

  explicit EventLoop(int workers) : workers_(static_cast<std::size_t>(workers)), idle_(workers) {}
  ~EventLoop() = default;
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Goes on to the next event.
  void step() {
    now_ = next_event();
    for (Worker& worker : workers_) {
      if (worker.busy && worker.until == now_) end_batch(worker);
    }
    // All arrivals at this time are queued before a worker wakes up.
    while (next_arrival() == now_) arrive();
    dispatch();
  }

  TimePoint now() const { return now_; }
  int idle() const { return idle_; }
  // Since when there are an idle worker and something for it.
  TimePoint ready_since() const { return ready_since_; }

  // Lets a worker run a batch. fill(batch) fills it, and returns how long it takes. To be called by start_batch().
  template <typename Fill>
  const Worker& start(Fill fill) {
    Worker& worker = *std::ranges::find(workers_, false, &Worker::busy);
    static_cast<Batch&>(worker) = {};
    worker.start = now_;
    worker.until = now_ + fill(worker);
    worker.busy = true;
    --idle_;
    ready_ = false;
    return worker;
  }

 private:
  virtual TimePoint next_arrival() const = 0;
  virtual void arrive() = 0;
  virtual void complete(const Worker& worker) = 0;
  virtual bool is_empty() const = 0;
  // When the next batch may start. The queue is not empty, and a worker is idle.
  virtual TimePoint due() = 0;
  // Starts a batch, unless the queue turns out to be empty.
  virtual void start_batch() = 0;

  TimePoint next_event() const {
    TimePoint next = std::min(next_arrival(), timer_);
    for (const Worker& worker : workers_) {
      if (worker.busy) next = std::min(next, worker.until);
    }
    return next;
  }

  void end_batch(Worker& worker) {
    worker.busy = false;
    ++idle_;
    complete(worker);
  }

  void dispatch() {
    timer_ = TimePoint::max();
    while (idle_ > 0 && !is_empty()) {
      if (!ready_) ready_since_ = now_;
      ready_ = true;
      const TimePoint at = due();
      if (at > now_) {
        timer_ = at + kTimerOvershoot;
        return;
      }
      start_batch();
    }
    ready_ = false;
  }

  std::vector<Worker> workers_;
  int idle_;
  bool ready_ = false;
  TimePoint ready_since_;
  TimePoint timer_ = TimePoint::max();
  TimePoint now_;
};

}  // namespace service_streamer::simulation
