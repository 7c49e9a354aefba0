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

// How batches are made for a model of which nothing is known but what its items show.
struct BatcherOptions {
  native::CollateOptions collate;
  double pad_value = 0;
  std::map<std::string, double> pad_values;  // by the name of a tensor, where it is another
  std::string mask;                          // argument that is made here, or ""
  std::string lengths;                       // the same
  bool pinned = false;
};

// Makes batches for one model, in memory that is used again. Called with the GIL, which is all that guards it: a buffer that one
// thread fills without it is taken by no other.
class Batcher {
 public:
  explicit Batcher(const pybind11::dict& given);

  const BatcherOptions options;
  torch_backend::Buffers buffers;
};

// The items of one batch in groups that can be put into the same tensors: of the same structure, names, types and ranks, with the
// same sizes but for those that are padded, and of the same key. The group of the oldest item is the first.
class Groups {
 public:
  // `keys`: a number for each item, or None for one that is left out.
  Groups(std::shared_ptr<Batcher> batcher, const pybind11::list& items, const pybind11::list& keys);

  // Items that are no tensors, by their places, and the exceptions that say so.
  const pybind11::dict& refused() const { return refused_; }

  // The places of the items of each group.
  std::vector<std::vector<std::size_t>> places() const;

  // The arguments for a group, by position and by name, and, where it is padded: how far, and how long each item is.
  // Releases the GIL while much is copied. Throws error_already_set.
  pybind11::tuple collate(std::size_t group);

 private:
  struct Item {
    std::size_t place = 0;
    std::uint64_t key = 0;
    bool named = false;              // a dict
    std::vector<std::string> names;  // of its tensors; in order
    std::vector<native::TensorView> views;
  };
  struct Plan;

  bool read(PyObject* given, Item& item);
  bool read_tensor(PyObject* given, const std::string& name, const Label& label, Item& item);
  bool read_dict(PyObject* given, Item& item);
  bool read_sequence(PyObject* given, Item& item);
  bool check_made_arguments(const Item& item) const;
  bool go_together(const Item& a, const Item& b) const;
  Plan plan_for(const std::vector<Item>& items) const;

  const std::shared_ptr<Batcher> batcher_;
  ViewOwners owners_;
  std::vector<std::vector<Item>> groups_;
  pybind11::dict refused_;
};

}  // namespace service_streamer::bindings
