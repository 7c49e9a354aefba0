#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "service_streamer/base/mutex.h"
#include "service_streamer/native/collate.h"
#include "service_streamer/native/model.h"
#include "service_streamer/native/signature.h"
#include "service_streamer/torch/program.h"

namespace service_streamer::torch_backend {

struct ModelOptions {
  LoadOptions file;                             // the same for all devices but for the device
  std::vector<c10::Device> devices{c10::kCPU};  // workers have them by turns
  bool pipelined = false;                       // each worker has two batches under way on its device
  bool to_host = false;                         // outputs come there, even of items that lie on a device
  native::Signature signature;
  native::CollateOptions collate;
  int intra_op_threads = 1;           // of each worker
  std::vector<std::int64_t> warm_up;  // numbers of items that each worker runs before the first batch
};

// What one run of the model gave, shared by everybody who has a part in it.
struct RunResult {
  std::vector<at::Tensor> tensors;                 // with the rows of the items, and perhaps more
  std::vector<std::int64_t> padded;                // sizes of the symbols in this run
  std::vector<std::vector<std::int64_t>> extents;  // those of each row, where outputs are trimmed
};

// The outputs of a range of a request: rows of one run, or of several where its items were run in groups.
class TensorOutputs final : public native::Outputs {
 public:
  struct Slice {
    std::shared_ptr<const RunResult> run;
    std::int64_t row = 0;     // the first
    std::uint32_t begin = 0;  // in the range
    std::uint32_t count = 0;
  };
  std::vector<Slice> slices;
};

class Runner;

// A program with what it takes and how batches are made for it. Thread-safe; each worker has a runner.
class Model final : public native::Model {
 public:
  explicit Model(const ModelOptions& options);

  std::unique_ptr<native::Runner> make_runner() override;

  // One that sets nothing of the calling thread, and is not warm.
  std::unique_ptr<Runner> make_plain_runner(std::size_t device);

  const native::Signature& signature() const { return options_.signature; }
  const ModelOptions& options() const { return options_; }

  c10::Device device(std::size_t number) const { return options_.devices[number]; }

  // Of one of the devices, by number; loaded by the first who asks: blocks. Throws RunError.
  Program& program(std::size_t device) EXCLUDES(mutex_);

  // An output, and which of its dimensions was padded with which symbol.
  struct Trim {
    std::size_t output = 0;
    std::int64_t dimension = 0;  // without the batch
    std::size_t symbol = 0;
  };
  const std::vector<Trim>& trims() const { return trims_; }

 private:
  const ModelOptions options_;
  std::vector<Trim> trims_;

  std::atomic<std::size_t> runners_{0};  // made so far

  Mutex mutex_;
  std::vector<std::unique_ptr<Program>> programs_ GUARDED_BY(mutex_);  // of each device; one stays once it is there
};

}  // namespace service_streamer::torch_backend
