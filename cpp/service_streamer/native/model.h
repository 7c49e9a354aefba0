#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

#include "service_streamer/native/phases.h"

namespace service_streamer::native {

// The interface of a model that worker threads run without the GIL. The core knows neither tensors nor libraries. A
// model reads the items of a request in the caller's thread. Its runners compute batches of items. Only the model's own
// bindings can read the items and the outputs.

// The items of one request, as the model has read them.
class Items {
 public:
  // Called once, by any thread, when the items are no longer needed. The implementation deletes them. It may defer that
  // until a thread holds the GIL.
  virtual void retire() noexcept = 0;

 protected:
  virtual ~Items() = default;
};

struct Retire {
  void operator()(Items* items) const noexcept { items->retire(); }
};
using ItemsRef = std::unique_ptr<Items, Retire>;

// The outputs for one ItemRange.
class Outputs {
 public:
  virtual ~Outputs() = default;
};

// A range of the items of one request. A batch is a list of them.
struct ItemRange {
  const Items* items = nullptr;
  std::uint32_t begin = 0;
  std::uint32_t count = 0;
};

enum class Fault : std::uint8_t {
  kModel,    // the model raised
  kMemory,   // there was not enough memory for this many items
  kOutputs,  // the number of outputs differs from the number of items
};

// Why a run failed, for the callers. The message is one line, or two lines of which the second names a remedy.
struct RunError : std::runtime_error {
  RunError(Fault its_fault, const std::string& message) : std::runtime_error(message), fault(its_fault) {}

  Fault fault;
  std::int64_t expected = 0;  // number of outputs; for Fault::kOutputs
  std::int64_t received = 0;  // the same
};

// A batch that a runner has launched. The destructor of an unfinished batch blocks until the device no longer uses its
// items.
class LaunchedBatch {
 public:
  virtual ~LaunchedBatch() = default;

  // Blocks until the model has run. Fills in the outputs and throws like Runner::run(). May be called once.
  virtual void finish(std::span<std::unique_ptr<Outputs>> outputs) = 0;
};

// Runs the model for one worker, and owns the buffers of its batches. Used by one thread at a time.
class Runner {
 public:
  virtual ~Runner() = default;

  // Where the runner notes the phases of a batch; nullptr if they are not recorded. Set before run() and launch(). A
  // launched batch keeps what was set at its launch.
  std::shared_ptr<PhaseLog> phases;

  // Blocks while the model runs. Fills in the outputs of each range. Throws RunError, std::bad_alloc, or another
  // std::exception with the reason.
  virtual void run(std::span<const ItemRange> ranges, std::span<std::unique_ptr<Outputs>> outputs) = 0;

  // The number of batches that may be in flight at the same time. More than 1 if the model runs on a device of its own,
  // so that the worker thread can prepare the next batch.
  virtual std::size_t depth() const { return 1; }

  // Starts a run and returns before it has ended. Only for a depth of more than 1. The items must stay in place until
  // the batch is finished. Batches must be finished in the order in which they were launched. Throws like run(); then
  // nothing was launched.
  virtual std::unique_ptr<LaunchedBatch> launch(std::span<const ItemRange> ranges);
};

// Shared by all workers. Thread-safe.
class Model {
 public:
  virtual ~Model() = default;

  // Called by the worker thread that will use the runner. May block, for example to load a file. Throws like
  // Runner::run().
  virtual std::unique_ptr<Runner> make_runner() = 0;
};

}  // namespace service_streamer::native
