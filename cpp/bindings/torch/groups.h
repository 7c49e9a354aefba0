#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bindings/torch/views.h"
#include "service_streamer/native/collate.h"
#include "service_streamer/torch/buffers.h"

namespace service_streamer::bindings {

// The options of a Batcher. There is no signature: names, types and ranks are taken from the items.
struct BatcherOptions {
  native::CollateOptions collate;
  double pad_value = 0;
  std::map<std::string, double> pad_values;  // exceptions from pad_value, by the name of the tensor
  std::string mask;                          // name of the generated argument, or ""
  std::string lengths;                       // the same
  bool pinned = false;
};

// The options and the reusable memory of one BatchedModel. Guarded by the GIL. A buffer that a thread fills without the
// GIL is referenced, so no other thread takes it.
class Batcher {
 public:
  explicit Batcher(const pybind11::dict& given);

  const BatcherOptions options;
  torch_backend::Buffers buffers;
};

// The items of one batch, divided into groups that can share tensors. The items of a group have the same key,
// structure, names, types and ranks, and the same sizes except for padded dimensions. The group of the oldest item is
// the first. Requires the GIL.
class Groups {
 public:
  // `keys` has a number for each item, or None to leave the item out.
  Groups(std::shared_ptr<Batcher> batcher, const pybind11::list& items, const pybind11::list& keys);

  // The items that cannot be read as tensors: a dict from the index of the item to the exception.
  const pybind11::dict& refused() const { return refused_; }

  // The indices of the items of each group.
  std::vector<std::vector<std::size_t>> places() const;

  // Returns (positional arguments, named arguments, padded length, lengths of the items) for a group. The last two are
  // None if nothing is padded. Releases the GIL for large copies. Throws error_already_set.
  pybind11::tuple collate(std::size_t group);

 private:
  struct Item {
    std::size_t index = 0;  // in the batch
    std::uint64_t key = 0;
    bool named = false;              // the item is a dict
    std::vector<std::string> names;  // of the tensors, in order
    std::vector<native::TensorView> views;
  };
  struct Plan;

  bool read(PyObject* given, Item& item);
  bool read_tensor(PyObject* given, const std::string& name, const Label& label, Item& item);
  bool read_dict(PyObject* given, Item& item);
  bool read_sequence(PyObject* given, Item& item);
  bool check_generated_arguments(const Item& item) const;
  bool fit_together(const Item& a, const Item& b) const;
  Plan plan_for(const std::vector<Item>& items) const;

  const std::shared_ptr<Batcher> batcher_;
  ViewOwners owners_;
  std::vector<std::vector<Item>> groups_;
  pybind11::dict refused_;
};

}  // namespace service_streamer::bindings
