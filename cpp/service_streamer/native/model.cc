#include "service_streamer/native/model.h"

namespace service_streamer::native {

std::unique_ptr<Launched> Runner::launch(std::span<const Part> /*parts*/) {
  throw std::logic_error("this runner has no depth");
}

}  // namespace service_streamer::native
