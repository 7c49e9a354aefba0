#include "service_streamer/torch/model.h"

#include <exception>

#include "service_streamer/torch/errors.h"
#include "service_streamer/torch/process.h"
#include "service_streamer/torch/runner.h"

namespace service_streamer::torch_backend {

Model::Model(const ModelOptions& options) : options_(options) {
  if (!options_.collate.pad) return;
  const auto& outputs = options_.signature.outputs;
  for (std::size_t output = 0; output < outputs.size(); ++output) {
    for (std::size_t i = 0; i < outputs[output].dimensions.size(); ++i) {
      const native::Dimension& dimension = outputs[output].dimensions[i];
      if (dimension.symbol == native::Dimension::kFixed) continue;
      trims_.push_back({.output = output,
                        .dimension = static_cast<std::int64_t>(i),
                        .symbol = static_cast<std::size_t>(dimension.symbol)});
    }
  }
}

Program& Model::program() {
  MutexLock lock(mutex_);
  if (program_ == nullptr) {
    try {
      program_ = options_.file.script ? load_script(options_.file, options_.signature) : load_package(options_.file);
    } catch (const std::exception& error) {
      throw run_error_of(error);
    }
  }
  return *program_;
}

// The number of threads is a setting of the calling thread.
std::unique_ptr<native::Runner> Model::make_runner() {
  program();
  set_intra_op_threads(options_.intra_op_threads);
  auto runner = std::make_unique<Runner>(*this);
  for (const std::int64_t items : options_.warm_up) runner->warm_up(static_cast<std::size_t>(items));
  return runner;
}

}  // namespace service_streamer::torch_backend
