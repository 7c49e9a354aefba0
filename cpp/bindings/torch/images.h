#pragma once

#include <pybind11/pybind11.h>

#include <vector>

namespace service_streamer::bindings {

// See python/service_streamer/torch/_images.py. `images` must be a contiguous uint8 tensor, images × rows × columns ×
// channels; the caller has checked it. Releases the GIL.
pybind11::object normalize_images(const pybind11::object& images, const std::vector<float>& scale,
                                  const std::vector<float>& shift, bool half);

}  // namespace service_streamer::bindings
