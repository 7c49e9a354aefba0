#include "bindings/torch/item_reader.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/python/deferred_delete.h"
#include "bindings/torch/views.h"
#include "service_streamer/torch/device.h"

namespace service_streamer::bindings {
namespace {

using native::ItemMismatch;
using native::Signature;
using native::Structure;
using native::TensorSpec;
using native::TensorView;

// The tensors of a request, with the objects and buffers that own their memory.
class ReadItems final : public native::TensorItems, public DeferredDelete {
 public:
  void retire() noexcept override { leave(this); }

  ViewOwners owners;
};

class ItemReader {
 public:
  ItemReader(const torch_backend::Model& model, ReadItems& into)
      : signature_(model.signature()), collate_(model.options().collate), into_(into) {
    for (std::size_t i = 0; i < signature_.inputs.size(); ++i) {
      const bool generated = std::cmp_equal(i, collate_.mask) || std::cmp_equal(i, collate_.lengths);
      if (!generated) item_inputs_.push_back(&signature_.inputs[i]);
    }
    // With several devices it is not known yet which of them will run the request.
    const torch_backend::ModelOptions& options = model.options();
    if (options.pipelined && options.devices.size() == 1) device_ = options.devices.front();
    if (device_ && !device_->is_cpu()) devices_ += " or " + device_->str();
  }

  // To be called after the last item: records the event after which items on the device are complete.
  void finish() {
    if (location_ == Location::kDevice) into_.ready = torch_backend::event_of_this_thread(*device_);
  }

  // False with an exception set.
  bool read_item(PyObject* item) {
    const std::size_t symbols = signature_.symbols.size();
    into_.extents.insert(into_.extents.end(), symbols, -1);
    extents_ = std::span(into_.extents).last(symbols);
    switch (signature_.input_structure) {
      case Structure::kTensor:
        return read_tensor(item, *item_inputs_.front());
      case Structure::kTuple:
      case Structure::kList:
        return read_tuple(item);
      case Structure::kDict:
        return read_dict(item);
    }
    return false;
  }

 private:
  bool read_tuple(PyObject* item) {
    const bool fits = (PyTuple_Check(item) || PyList_Check(item)) &&
                      PySequence_Fast_GET_SIZE(item) == static_cast<Py_ssize_t>(item_inputs_.size());
    if (!fits) return refuse_item(item, "a tuple of ");
    for (std::size_t i = 0; i < item_inputs_.size(); ++i) {
      if (!read_tensor(PySequence_Fast_GET_ITEM(item, static_cast<Py_ssize_t>(i)), *item_inputs_[i])) return false;
    }
    return true;
  }

  bool read_dict(PyObject* item) {
    if (!PyDict_Check(item) && PyType_HasFeature(Py_TYPE(item), Py_TPFLAGS_MAPPING)) {
      PyObject* copied = PyDict_New();
      const bool read = copied != nullptr && PyDict_Update(copied, item) == 0 && read_dict(copied);
      Py_XDECREF(copied);
      return read;
    }
    if (!PyDict_Check(item) || PyDict_GET_SIZE(item) != static_cast<Py_ssize_t>(item_inputs_.size())) {
      return refuse_item(item, "a dict of ");
    }
    for (const TensorSpec* input : item_inputs_) {
      PyObject* tensor = PyDict_GetItemString(item, input->name.c_str());
      if (tensor == nullptr) return refuse_item(item, "a dict of ");
      if (!read_tensor(tensor, *input)) return false;
    }
    return true;
  }

  bool refuse_item(PyObject* item, const char* wanted) {
    std::string names;
    for (const TensorSpec* input : item_inputs_) names += (names.empty() ? "'" : ", '") + input->name + "'";
    PyObject* received = PyDict_Check(item) ? PyDict_Keys(item) : Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(item)));
    if (received == nullptr) return false;
    PyErr_Format(PyExc_TypeError, "an item must be %s%zu tensors, %s, got %R", wanted, item_inputs_.size(),
                 names.c_str(), received);
    Py_DECREF(received);
    return false;
  }

  bool read_tensor(PyObject* object, const TensorSpec& input) {
    TensorView view;
    const Label label{.before = "input '",
                      .name = input.name.c_str(),
                      .after = "' of an item",
                      .wanted = native::to_string(input.dtype),
                      .devices = devices_.c_str()};
    const std::optional<Location> location = into_.owners.view(object, label, view, device_);
    if (!location || !check_location(*location)) return false;
    const std::optional<ItemMismatch> mismatch = native::check_tensor(signature_, input, view, collate_.pad, extents_);
    if (mismatch) {
      PyErr_SetString(mismatch->wrong_type ? PyExc_TypeError : PyExc_ValueError, mismatch->message.c_str());
      return false;
    }
    into_.views.push_back(view);
    return true;
  }

  // All tensors of a request must be on the model's device, or all on the host.
  bool check_location(Location location) {
    if (location_.value_or(location) == location) {
      location_ = location;
      return true;
    }
    PyErr_Format(PyExc_TypeError,
                 "some tensors of a request are on %s and some are not: all must be on the same device",
                 device_->str().c_str());
    return false;
  }

  const Signature& signature_;
  const native::CollateOptions& collate_;
  ReadItems& into_;
  std::vector<const TensorSpec*> item_inputs_;
  std::span<std::int64_t> extents_;                    // of the current item
  std::optional<torch_backend::TensorDevice> device_;  // where tensors may be besides the host
  std::string devices_ = "cpu";                        // the accepted devices, for messages
  std::optional<Location> location_;                   // of the tensors read so far
};

}  // namespace

native::ItemsRef read_items(PyObject* items, const torch_backend::Model& model) {
  auto read = std::make_unique<ReadItems>();
  ItemReader reader(model, *read);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items); ++i) {
    if (!reader.read_item(PyTuple_GET_ITEM(items, i))) return nullptr;
  }
  reader.finish();
  return native::ItemsRef(read.release());
}

}  // namespace service_streamer::bindings
