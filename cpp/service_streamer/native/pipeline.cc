#include "service_streamer/native/pipeline.h"

#include <utility>

#include "service_streamer/native/flight.h"

namespace service_streamer::native {

Pipeline::Pipeline(std::unique_ptr<Device> device, const Signature& signature, const CollateOptions& options,
                   std::size_t places)
    : device_(std::move(device)) {
  for (std::size_t i = 0; i < places; ++i) {
    places_.push_back(std::make_unique<Flight>(*device_, signature, options));
  }
}

Pipeline::~Pipeline() = default;

void Pipeline::launch(std::span<const Collator::Item> items, DeviceRun& run) {
  Flight& place = *places_[next_];
  place.land();
  place.launch(items, run);
  next_ = (next_ + 1) % places_.size();
}

void Pipeline::land(DeviceRun& run) {
  abandon(run);
  if (run.failure_) std::rethrow_exception(std::exchange(run.failure_, nullptr));
}

// From the oldest place on.
void Pipeline::abandon(DeviceRun& run) noexcept {
  for (std::size_t i = 0; run.under_way_ && i < places_.size(); ++i) places_[(next_ + i) % places_.size()]->land();
}

}  // namespace service_streamer::native
