#pragma once

#include <memory>

#include "service_streamer/batching/engine.h"
#include "service_streamer/native/model.h"
#include "service_streamer/native/worker.h"

namespace service_streamer::native {

// The worker threads of a native model. Each takes batches from the engine until the engine is closed and empty. The
// threads never take the GIL.
//
// The destructor does not join the threads, because a run of the model may take arbitrarily long. The threads keep the
// model and `keep` alive until the last of them has ended; join() waits for that. All methods may be called by any
// thread.
class Workers {
 public:
  Workers(Engine& engine, std::shared_ptr<Model> model, const WorkersOptions& options);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // Starts the threads; later calls do nothing. `keep` owns the engine. If the system refuses a thread, the ones that
  // were started go on. Throws std::system_error if none could be started; start() may then be called again.
  void start(const std::shared_ptr<void>& keep);

  // Blocks until each thread has tried to make its runner.
  Completion::Wait wait_ready(Waiter& waiter, TimePoint deadline) const;

  // The number of threads of all Workers in this process.
  static int alive();
  // Sets alive() to 0. To be called in a forked child, which has none of the threads.
  static void reset_after_fork();

  // Blocks until all threads have ended (kDone), until the deadline, or until a signal.
  Completion::Wait join(Waiter& waiter, TimePoint deadline) const;

 private:
  struct Shared;

  const std::shared_ptr<Model> model_;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace service_streamer::native
