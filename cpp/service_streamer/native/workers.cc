#include "service_streamer/native/workers.h"

#include <atomic>
#include <system_error>
#include <thread>
#include <utility>

#include "service_streamer/waiting/io_thread.h"

namespace service_streamer::native {
namespace {

std::atomic<int> threads_alive{0};

// Counts a thread while it runs.
struct CountedThread {
  CountedThread() { threads_alive.fetch_add(1); }
  ~CountedThread() { threads_alive.fetch_sub(1); }
  CountedThread(const CountedThread&) = delete;
  CountedThread& operator=(const CountedThread&) = delete;
};

}  // namespace

struct Workers::Shared {
  Shared(Engine& its_engine, const WorkersOptions& its_options) : engine(its_engine), options(its_options) {}

  // Publishes the completion when the count reaches 0.
  static void count_down(std::atomic<int>& left, Completion& completion) {
    if (left.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    WakeQueue::instance().publish(completion);
    WakeQueue::instance().wake();
  }

  Engine& engine;
  const WorkersOptions options;
  std::atomic<int> preparing{1};  // threads without a runner yet, and start() itself
  std::atomic<int> running{1};    // threads, and start() itself
  std::atomic<bool> started{false};
  Completion ready;
  Completion ended;
};

Workers::Workers(Engine& engine, std::shared_ptr<Model> model, const WorkersOptions& options)
    : model_(std::move(model)), shared_(std::make_shared<Shared>(engine, options)) {}

Workers::~Workers() = default;

void Workers::start(const std::shared_ptr<void>& keep) {
  if (shared_->started.exchange(true)) return;
  for (int i = 0; i < shared_->options.count; ++i) {
    shared_->preparing.fetch_add(1, std::memory_order_relaxed);
    shared_->running.fetch_add(1, std::memory_order_relaxed);
    try {
      // The thread drops its references before it reports its end, so that join() returns after the model can be freed.
      ipc::start_io_thread("streamer-model", [shared = shared_, model = model_, kept = keep]() mutable {
        const CountedThread counted;
        {
          Worker worker(shared->engine, *model, shared->options);
          worker.prepare();
          Shared::count_down(shared->preparing, shared->ready);
          worker.run();
        }
        model.reset();
        kept.reset();
        Shared::count_down(shared->running, shared->ended);
      }).detach();
    } catch (const std::system_error&) {
      shared_->preparing.fetch_sub(1, std::memory_order_relaxed);
      shared_->running.fetch_sub(1, std::memory_order_relaxed);
      if (i > 0) break;
      shared_->started = false;
      throw;
    }
  }
  Shared::count_down(shared_->preparing, shared_->ready);
  Shared::count_down(shared_->running, shared_->ended);
}

int Workers::alive() {
  return threads_alive.load();
}

void Workers::reset_after_fork() {
  threads_alive = 0;
}

Completion::Wait Workers::wait_ready(Waiter& waiter, TimePoint deadline) const {
  return shared_->ready.wait(waiter, deadline);
}

Completion::Wait Workers::join(Waiter& waiter, TimePoint deadline) const {
  if (!shared_->started) return Completion::Wait::kDone;
  return shared_->ended.wait(waiter, deadline);
}

}  // namespace service_streamer::native
