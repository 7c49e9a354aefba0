#pragma once

#include <Python.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "service_streamer/native/tensor.h"

namespace service_streamer::bindings {

// What a message calls a tensor, and which numbers it says are wanted, and where.
struct Label {
  const char* before;
  const char* name;
  const char* after;
  const char* wanted;
  const char* devices = "cpu";

  std::string text() const { return std::string(before) + name + after; }
};

// Whose memory a tensor lies in.
enum class Location : std::uint8_t { kHost, kDevice };

// The objects that views lie in, which so stay where they are. With the GIL.
class ViewOwners {
 public:
  ViewOwners() = default;
  ~ViewOwners();
  ViewOwners(const ViewOwners&) = delete;
  ViewOwners& operator=(const ViewOwners&) = delete;

  // What somebody gave, a tensor or whatever has a buffer (a numpy array), as numbers in memory; nothing is copied. `device`: where
  // a tensor may lie besides the host. nullopt with a TypeError set.
  std::optional<Location> view(PyObject* object, const Label& label, native::TensorView& view,
                               std::optional<c10::Device> device = std::nullopt);

 private:
  std::optional<Location> view_tensor(PyObject* object, const Label& label, native::TensorView& view,
                                      std::optional<c10::Device> device);
  std::optional<Location> view_buffer(PyObject* object, const Label& label, native::TensorView& view);

  std::vector<PyObject*> objects_;
  std::deque<Py_buffer> buffers_;  // in place: some exporters have pointers into them
};

}  // namespace service_streamer::bindings
