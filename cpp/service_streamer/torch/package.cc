#include <dlfcn.h>
#include <unistd.h>

#include <filesystem>
#include <mutex>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include "service_streamer/torch/device.h"
#include "service_streamer/torch/process.h"
#include "service_streamer/torch/program.h"

namespace service_streamer::torch_backend {
namespace {

// A package of AOTInductor: a shared object with a C interface. torch declares it in
// torch/csrc/inductor/aoti_runtime/interface.h.
class Package final : public Program {
 public:
  explicit Package(const LoadOptions& options)
      : folder_(options.folder),
        device_(options.device),
        library_(dlopen(options.path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) throw std::runtime_error(reason());
    try {
      open(options);
    } catch (...) {
      close();
      throw;
    }
  }

  ~Package() override { close(); }
  Package(const Package&) = delete;
  Package& operator=(const Package&) = delete;

  // The container takes the inputs and gives the outputs.
  std::vector<Tensor> run(std::vector<Tensor> inputs) override {
    std::vector<TensorHandle> given;
    given.reserve(inputs.size());
    for (Tensor& input : inputs) given.push_back(input.release());
    std::vector<TensorHandle> made(outputs_);
    const TorchStream stream = TorchStream::of_this_thread(device_);
    const std::int32_t code =
        run_(container_, given.data(), given.size(), made.data(), made.size(), stream.native, nullptr);
    std::vector<Tensor> outputs(made.begin(), made.end());  // a failed run may have made some
    check(code);
    return outputs;
  }

 private:
  using Container = void*;

  static std::string reason() {
    const std::string text = dlerror();
    const bool no_exec = text.find("failed to map segment") != std::string::npos;
    return no_exec ? text + " (set TMPDIR to a folder on a file system without the option noexec)" : text;
  }

  void open(const LoadOptions& options) {
    find(delete_, "AOTInductorModelContainerDelete");
    find(run_, "AOTInductorModelContainerRun");
    last_error_ = reinterpret_cast<decltype(last_error_)>(dlsym(library_, "AOTInductorGetLastError"));
    std::int32_t (*create)(Container*, std::size_t runners, const char* device, const char* folder) = nullptr;
    std::int32_t (*outputs)(Container, std::size_t* count) = nullptr;
    find(create, "AOTInductorModelContainerCreateWithDevice");
    find(outputs, "AOTInductorModelContainerGetNumOutputs");
    check(create(&container_, static_cast<std::size_t>(options.runners), options.device.str().c_str(),
                 options.folder->c_str()));
    check(outputs(container_, &outputs_));
    check_weights();
  }

  // A package without its weights would crash when it runs. Packages of torch before 2.13 do not tell. A part may be
  // missing in the map: its weights have a name in common with others.
  void check_weights() const {
    struct Weight {
      const char* name;
      TensorHandle tensor;
    };
    std::int32_t (*extract)(Container, const Weight** weights, std::size_t* count, bool use_inactive) = nullptr;
    std::int32_t (*count)(Container, std::size_t* count) = nullptr;
    std::int32_t (*is_folded)(Container, std::size_t index, bool* folded) = nullptr;
    extract =
        reinterpret_cast<decltype(extract)>(dlsym(library_, "AOTInductorModelContainerExtractConstantsMapEntries"));
    if (extract == nullptr) return;
    find(count, "AOTInductorModelContainerGetNumConstants");
    find(is_folded, "AOTInductorModelContainerGetConstantFromFolded");
    std::size_t constants = 0;
    check(count(container_, &constants));
    std::size_t wanted = 0;
    for (std::size_t i = 0; i < constants; ++i) {
      bool folded = false;  // is computed from others
      check(is_folded(container_, i, &folded));
      if (!folded) ++wanted;
    }
    const Weight* weights = nullptr;
    std::size_t there = 0;
    check(extract(container_, &weights, &there, false));
    if (there > 0 || wanted == 0) return;
    throw std::runtime_error("the package has 0 of its " + std::to_string(wanted) +
                             " weights: compile it without the option aot_inductor.package_constants_in_so");
  }

  void close() {
    if (container_ != nullptr) delete_(container_);
    dlclose(library_);
  }

  template <typename Function>
  void find(Function& function, const char* name) const {
    function = reinterpret_cast<Function>(dlsym(library_, name));
    if (function == nullptr) throw std::runtime_error(std::string("the package has no function ") + name);
  }

  // If a function of torch failed, the package knows its name, and torch the reason. Packages of torch before 2.13 tell
  // neither; they only print it.
  void check(std::int32_t code) const {
    if (code == 0) return;
    const char* text = nullptr;
    if (last_error_ != nullptr) last_error_(&text);
    if (text == nullptr || *text == '\0') throw std::runtime_error("the package failed; it has printed the reason");
    const bool of_torch = std::string_view(text).starts_with("aoti_torch_");
    if (of_torch) torch_backend::check(code);
    throw std::runtime_error(text);
  }

  const std::shared_ptr<const std::string> folder_;
  const TensorDevice device_;
  void* const library_;
  std::int32_t (*delete_)(Container) = nullptr;
  std::int32_t (*run_)(Container, TensorHandle* inputs, std::size_t input_count, TensorHandle* outputs,
                       std::size_t output_count, void* stream, void* proxy_executor) = nullptr;
  std::int32_t (*last_error_)(const char** text) = nullptr;
  Container container_ = nullptr;
  std::size_t outputs_ = 0;
};

}  // namespace

std::shared_ptr<const std::string> temporary_folder(const std::string& path) {
  const pid_t owner = getpid();
  return {new std::string(path), [owner](const std::string* folder) {
            std::error_code ignored;
            if (getpid() == owner) std::filesystem::remove_all(*folder, ignored);
            delete folder;
          }};
}

std::unique_ptr<Program> load_package(const LoadOptions& options) {
  const std::lock_guard held(process_lock());
  return std::make_unique<Package>(options);
}

}  // namespace service_streamer::torch_backend
