#pragma once

#include <Python.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "service_streamer/native/tensor.h"
#include "service_streamer/torch/tensor.h"

namespace service_streamer::bindings {

// The words of an error message about a tensor: before + name + after, the expected type, and the accepted devices.
struct Label {
  const char* before;
  const char* name;
  const char* after;
  const char* wanted;
  const char* devices = "cpu";

  std::string text() const { return std::string(before) + name + after; }
};

// Where the memory of a tensor is.
enum class Location : std::uint8_t { kHost, kDevice };

// Returns a new reference to the dict, or to a dict with the content of any other mapping, such as the BatchEncoding of
// a tokenizer. nullptr if the object is no mapping; then an exception is set only if asking it has raised.
PyObject* dict_of(PyObject* object);

// Makes views of Python objects, and keeps the objects alive and in place until it is destroyed. Requires the GIL.
class ViewOwners {
 public:
  ViewOwners() = default;
  ~ViewOwners();
  ViewOwners(const ViewOwners&) = delete;
  ViewOwners& operator=(const ViewOwners&) = delete;

  // Makes a view of a tensor, or of an object with the buffer protocol (a numpy array). Nothing is copied. A tensor
  // must be on the host or on `device`. nullopt with a TypeError set on failure.
  std::optional<Location> view(PyObject* object, const Label& label, native::TensorView& view,
                               std::optional<torch_backend::TensorDevice> device = std::nullopt);

 private:
  std::optional<Location> view_tensor(PyObject* object, const Label& label, native::TensorView& view,
                                      std::optional<torch_backend::TensorDevice> device);
  std::optional<Location> view_buffer(PyObject* object, const Label& label, native::TensorView& view);

  std::vector<PyObject*> objects_;
  std::deque<Py_buffer> buffers_;  // a deque, because some exporters keep pointers to their Py_buffer
};

}  // namespace service_streamer::bindings
