#pragma once

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
  LoadOptions file;                       // `device` is replaced by each of `devices`
  std::vector<TensorDevice> devices{{}};  // assigned to the workers in turn
  bool pipelined = false;                 // each worker has two batches in flight on its device
  bool to_host = false;                   // outputs are copied to the host, even if the items were on a device
  native::Signature signature;
  native::CollateOptions collate;
  int intra_op_threads = 1;           // for each worker
  std::vector<std::int64_t> warm_up;  // batch sizes that each worker runs before its first batch
};

// The outputs of one run of the model, shared by all requests with rows in it.
struct RunResult {
  std::vector<Tensor> tensors;                     // one row for each item, and possibly padding rows
  std::vector<std::int64_t> padded;                // the size of each symbol in this run
  std::vector<std::vector<std::int64_t>> extents;  // the same for each row; empty if outputs are not trimmed
};

// The outputs of a range of a request. They are rows of one run, or of several if the items were run in groups.
class TensorOutputs final : public native::Outputs {
 public:
  struct Slice {
    std::shared_ptr<const RunResult> run;
    std::int64_t row = 0;     // the first row in the run
    std::uint32_t begin = 0;  // the first item, within the range
    std::uint32_t count = 0;
  };
  std::vector<Slice> slices;
};

class Runner;

// A model file with its signature and the options for making batches. Thread-safe. Each worker makes one runner.
class Model final : public native::Model {
 public:
  explicit Model(const ModelOptions& options);

  std::unique_ptr<native::Runner> make_runner() override;

  // Like make_runner(), but without warm-up, and without changing settings of the calling thread.
  std::unique_ptr<Runner> make_plain_runner(std::size_t device);

  const native::Signature& signature() const { return options_.signature; }
  const ModelOptions& options() const { return options_; }

  TensorDevice device(std::size_t index) const { return options_.devices[index]; }

  // The program for one of the devices, by index. The first call loads the file and blocks meanwhile. Throws RunError.
  Program& program(std::size_t device) EXCLUDES(mutex_);

  // A dimension of an output that has padding, and the symbol that tells how much.
  struct Trim {
    std::size_t output = 0;
    std::int64_t dimension = 0;  // without the batch dimension
    std::size_t symbol = 0;
  };
  const std::vector<Trim>& trims() const { return trims_; }

 private:
  void remove_needless_files() REQUIRES(mutex_);

  const ModelOptions options_;
  std::vector<Trim> trims_;

  std::atomic<std::size_t> runners_{0};  // number of runners made so far

  Mutex mutex_;
  std::vector<std::unique_ptr<Program>> programs_ GUARDED_BY(mutex_);  // one for each device; never replaced
};

}  // namespace service_streamer::torch_backend
