#pragma once

#include <memory>

#include "service_streamer/batching/engine.h"
#include "service_streamer/native/model.h"
#include "service_streamer/native/worker.h"

namespace service_streamer::native {

// The threads that run a native model: each takes batches from the engine until that is closed and empty. They never ask for
// the GIL.
//
// They are not joined by a destructor, for a model may take for ever: whatever they use lives until the last of them has
// ended. `keep` is what that is besides the model: the owner of the engine.
class Workers {
 public:
  Workers(Engine& engine, std::shared_ptr<Model> model, const WorkersOptions& options);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // Once; where the system has no thread left fewer than wanted are started. Throws std::system_error when that is none: then
  // it may be tried again.
  void start(const std::shared_ptr<void>& keep);

  // Blocks until all that were started have a runner, or could not make one. Any thread.
  Completion::Wait wait_ready(Waiter& waiter, TimePoint deadline) const;

  // How many threads there are in this process, of all workers. Any thread.
  static int alive();
  // In a forked child, which has none of them.
  static void forget_those_of_parent();

  // Blocks until all that were started have ended (kDone), the deadline, or a signal. Any thread.
  Completion::Wait join(Waiter& waiter, TimePoint deadline) const;

 private:
  struct Shared;

  const std::shared_ptr<Shared> shared_;
};

}  // namespace service_streamer::native
