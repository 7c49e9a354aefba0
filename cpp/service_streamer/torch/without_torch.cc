#include <stdexcept>

#include "service_streamer/torch/program.h"

namespace service_streamer::torch_backend {

std::unique_ptr<Program> load_script(const LoadOptions& /*options*/, const native::Signature& /*signature*/) {
  throw std::runtime_error("TorchScript needs `python -m service_streamer.build_torch`");
}

}  // namespace service_streamer::torch_backend
