#include "service_streamer/native/pipeline.h"

#include <utility>

#include "service_streamer/native/slot.h"

namespace service_streamer::native {

Pipeline::Pipeline(std::unique_ptr<Device> device, const Signature& signature, const CollateOptions& options,
                   std::size_t slots)
    : device_(std::move(device)) {
  for (std::size_t i = 0; i < slots; ++i) {
    slots_.push_back(std::make_unique<Slot>(*device_, signature, options));
  }
}

Pipeline::~Pipeline() = default;

void Pipeline::launch(std::span<const Collator::Item> items, DeviceRun& run) {
  Slot& slot = *slots_[next_];
  slot.finish();
  slot.launch(items, run);
  next_ = (next_ + 1) % slots_.size();
}

void Pipeline::finish(DeviceRun& run) {
  abandon(run);
  if (run.failure_) std::rethrow_exception(std::exchange(run.failure_, nullptr));
}

// Frees slots from the oldest on, because runs are finished in the order of their launches.
void Pipeline::abandon(DeviceRun& run) noexcept {
  for (std::size_t i = 0; run.in_flight_ && i < slots_.size(); ++i) slots_[(next_ + i) % slots_.size()]->finish();
}

}  // namespace service_streamer::native
