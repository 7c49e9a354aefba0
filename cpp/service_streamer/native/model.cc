#include "service_streamer/native/model.h"

namespace service_streamer::native {

std::unique_ptr<LaunchedBatch> Runner::launch(std::span<const ItemRange> /*ranges*/) {
  throw std::logic_error("Runner::launch() needs a runner with a depth of more than 1");
}

}  // namespace service_streamer::native
