#include <algorithm>
#include <deque>
#include <vector>

#include "simulation/server.h"

namespace service_streamer::simulation {
namespace {

// How long a worker sleeps if it got no item.
constexpr Duration kSleep = std::chrono::milliseconds(1);

// The loop of service_streamer 0.1.2. A worker gets items one at a time, until its batch is full, a get has waited
// for max_latency, or an item came more than max_latency after the first get began. The workers share one
// multiprocessing.Queue. The worker that collects takes the read lock again before another worker wakes up. So the
// others get items only after its batch is closed.
class OriginalServer {
 public:
  OriginalServer(const Cell& cell, std::uint64_t seed, Length length)
      : cell_(cell), backlog_(cell, seed, length), workers_(static_cast<std::size_t>(cell.workers)) {
    for (Worker& worker : workers_) begin(worker);
  }

  double run() {
    while (!backlog_.finished()) {
      now_ = next_event();
      while (backlog_.next_arrival() == now_) backlog_.arrive();
      for (Worker& worker : workers_) {
        if (worker.state == State::kBusy && worker.until == now_) {
          backlog_.complete(worker.ranges, now_);
          begin(worker);
        } else if (worker.state == State::kSleeping && worker.until == now_) {
          begin(worker);
        }
      }
      collect();
      time_out();
    }
    return backlog_.cost();
  }

 private:
  enum class State { kGetting, kBusy, kSleeping };

  struct Worker {
    State state = State::kGetting;
    TimePoint until;  // end of the get, the batch or the sleep
    TimePoint began;
    int items = 0;
    Ranges ranges;
  };

  TimePoint next_event() const {
    TimePoint next = backlog_.next_arrival();
    for (const Worker& worker : workers_) next = std::min(next, worker.until);
    return next;
  }

  void begin(Worker& worker) {
    worker.state = State::kGetting;
    worker.began = now_;
    worker.items = 0;
    worker.ranges.clear();
    get(worker);
    readers_.push_back(&worker);
  }

  void get(Worker& worker) { worker.until = now_ + cell_.max_latency + kTimerOvershoot; }

  // The first worker in this list holds the read lock.
  void collect() {
    while (!readers_.empty() && backlog_.items() > 0) {
      Worker& worker = *readers_.front();
      const bool late = now_ - worker.began > cell_.max_latency;
      const int taken = std::min(backlog_.items(), late ? 1 : cell_.batch_size - worker.items);
      backlog_.take(taken, worker.ranges);
      worker.items += taken;
      get(worker);
      if (!late && worker.items < cell_.batch_size) return;
      readers_.pop_front();
      predict(worker);
    }
  }

  void time_out() {
    for (std::size_t index = 0; index < readers_.size();) {
      Worker& worker = *readers_[index];
      if (worker.until > now_) {
        ++index;
        continue;
      }
      readers_.erase(readers_.begin() + static_cast<std::ptrdiff_t>(index));
      if (worker.items > 0) {
        predict(worker);
      } else {
        worker.state = State::kSleeping;
        worker.until = now_ + kSleep + kTimerOvershoot;
      }
    }
  }

  void predict(Worker& worker) {
    worker.state = State::kBusy;
    worker.until = now_ + cell_.model.service(worker.items);
  }

  const Cell& cell_;
  Backlog backlog_;
  std::vector<Worker> workers_;
  std::deque<Worker*> readers_;
  TimePoint now_;
};

}  // namespace

double simulate_original(const Cell& cell, std::uint64_t seed, Length length) {
  return OriginalServer(cell, seed, length).run();
}

}  // namespace service_streamer::simulation
