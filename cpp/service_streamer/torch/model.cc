#include "service_streamer/torch/model.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <system_error>

#include "service_streamer/torch/errors.h"
#include "service_streamer/torch/pipelined_runner.h"
#include "service_streamer/torch/process.h"
#include "service_streamer/torch/runner.h"

namespace service_streamer::torch_backend {

Model::Model(const ModelOptions& options) : options_(options), programs_(options.devices.size()) {
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

Program& Model::program(std::size_t device) {
  MutexLock lock(mutex_);
  std::unique_ptr<Program>& program = programs_[device];
  if (program == nullptr) {
    LoadOptions file = options_.file;
    file.device = options_.devices[device];
    try {
      program = file.is_script() ? load_script(file, options_.signature) : load_package(file);
    } catch (const std::exception& error) {
      throw run_error_of(error);
    }
    remove_needless_files();
  }
  return *program;
}

// A package for a GPU reads its kernels later. One for the CPU has been read, so a killed process leaves no files.
void Model::remove_needless_files() {
  const bool read = std::ranges::all_of(programs_, [](const auto& program) { return program != nullptr; });
  const bool on_cpu = std::ranges::all_of(options_.devices, [](TensorDevice device) { return device.is_cpu(); });
  std::error_code ignored;
  if (read && on_cpu && !options_.file.is_script()) std::filesystem::remove_all(*options_.file.folder, ignored);
}

std::unique_ptr<Runner> Model::make_plain_runner(std::size_t device) {
  if (options_.pipelined) return std::make_unique<PipelinedRunner>(*this, device);
  return std::make_unique<Runner>(*this, device);
}

// The number of intra-op threads is a setting of the calling thread, which is the worker thread here.
std::unique_ptr<native::Runner> Model::make_runner() {
  const std::size_t device = runners_.fetch_add(1, std::memory_order_relaxed) % options_.devices.size();
  program(device);
  set_intra_op_threads(options_.intra_op_threads);
  std::unique_ptr<Runner> runner = make_plain_runner(device);
  for (const std::int64_t items : options_.warm_up) runner->warm_up(static_cast<std::size_t>(items));
  return runner;
}

}  // namespace service_streamer::torch_backend
