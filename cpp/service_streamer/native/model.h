#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

namespace service_streamer::native {

// What workers without the GIL run. The core knows neither tensors nor libraries: a model reads the items of a request in its
// caller's thread, runs on batches of them, and gives everybody his part of the outputs, which only its own bindings can read.

// The items of one request, as the model has read them.
class Items {
 public:
  // Nobody needs them any more; any thread. Whoever made them deletes them, later where that takes a lock of Python's.
  virtual void retire() noexcept = 0;

 protected:
  virtual ~Items() = default;
};

struct Retire {
  void operator()(Items* items) const noexcept { items->retire(); }
};
using ItemsRef = std::unique_ptr<Items, Retire>;

// The outputs of a range of a request.
class Outputs {
 public:
  virtual ~Outputs() = default;
};

// A range of the items of a request, to be run.
struct Part {
  const Items* items = nullptr;
  std::uint32_t begin = 0;
  std::uint32_t count = 0;
};

enum class Fault : std::uint8_t {
  kModel,    // it raised
  kMemory,   // there was too little for so many items
  kOutputs,  // another number of outputs than of items
};

// What went wrong in a run, for the callers: one line, or two of which the second says what to do.
struct RunError : std::runtime_error {
  RunError(Fault its_fault, const std::string& message) : std::runtime_error(message), fault(its_fault) {}

  Fault fault;
  std::int64_t expected = 0;  // kOutputs
  std::int64_t received = 0;
};

// A batch that a runner has launched. Dropped before it is finished it blocks until nothing is at the items any more.
class Launched {
 public:
  virtual ~Launched() = default;

  // Blocks until the model has run; fills in the outputs and throws as Runner::run(). Once.
  virtual void finish(std::span<std::unique_ptr<Outputs>> outputs) = 0;
};

// A model as one worker has it, with the buffers of its batches. By one thread at a time.
class Runner {
 public:
  virtual ~Runner() = default;

  // Blocks while the model runs; fills in the outputs of each part. Throws RunError, std::bad_alloc, or what says why not.
  virtual void run(std::span<const Part> parts, std::span<std::unique_ptr<Outputs>> outputs) = 0;

  // How many batches it may have under way at a time. One that computes elsewhere, beside its thread, has more than 1.
  virtual std::size_t depth() const { return 1; }

  // Of a runner with a depth: begins to run the parts, whose items stay in place until that is finished, and does not wait for it.
  // They are finished in the order in which they were launched. Throws as run(); then nothing is under way.
  virtual std::unique_ptr<Launched> launch(std::span<const Part> parts);
};

class Model {
 public:
  virtual ~Model() = default;

  // By the thread of the worker that it is for. Throws as Runner::run().
  virtual std::unique_ptr<Runner> make_runner() = 0;
};

}  // namespace service_streamer::native
