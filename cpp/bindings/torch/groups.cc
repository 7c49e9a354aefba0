#include "bindings/torch/groups.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "bindings/torch/errors.h"
#include "bindings/torch/options.h"
#include "bindings/torch/python_tensors.h"
#include "bindings/torch/without_gil.h"

namespace py = pybind11;

namespace service_streamer::bindings {
namespace {

using native::Collator;

// Smaller copies keep the GIL: getting it back from another thread could take longer than the copy.
constexpr std::size_t kMinBytesWithoutGil = 64 << 10;

BatcherOptions batcher_options_from(const py::dict& given) {
  return {.collate = collate_options_from(given),
          .pad_value = given["pad_value"].cast<double>(),
          .pad_values = given["pad_values"].cast<std::map<std::string, double>>(),
          .mask = given["mask"].cast<std::string>(),
          .lengths = given["lengths"].cast<std::string>(),
          .pinned = given["pinned"].cast<bool>()};
}

py::object wrapped(std::shared_ptr<std::byte> memory, const Collator::Tensor& tensor) {
  PyObject* object = python_tensor(std::move(memory), tensor.dtype, tensor.sizes);
  if (object == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(object);
}

bool refuse(const char* message, PyObject* what) {
  PyErr_Clear();  // an error of PyUnicode_AsUTF8()
  PyErr_Format(PyExc_TypeError, message, what);
  return false;
}

}  // namespace

Batcher::Batcher(const py::dict& given) : options(batcher_options_from(given)), buffers(options.pinned) {}

// --- reading ---

Groups::Groups(std::shared_ptr<Batcher> batcher, const py::list& items, const py::list& keys)
    : batcher_(std::move(batcher)) {
  for (std::size_t index = 0; index < items.size(); ++index) {
    const py::object key = keys[index];
    if (key.is_none()) continue;
    Item item{.index = index, .key = key.cast<std::uint64_t>(), .names = {}, .views = {}};
    const py::object given = items[index];
    if (!read(given.ptr(), item)) {
      refused_[py::int_(index)] = py::error_already_set().value();
      continue;
    }
    const auto group = std::find_if(groups_.begin(), groups_.end(),
                                    [&](const std::vector<Item>& each) { return fit_together(each.front(), item); });
    if (group != groups_.end()) {
      group->push_back(std::move(item));
    } else {
      groups_.emplace_back().push_back(std::move(item));
    }
  }
}

bool Groups::read(PyObject* given, Item& item) {
  bool is_read;
  if (PyDict_Check(given)) {
    is_read = read_dict(given, item);
  } else if (PyType_HasFeature(Py_TYPE(given), Py_TPFLAGS_MAPPING)) {
    const py::dict copied;
    is_read = PyDict_Update(copied.ptr(), given) == 0 && read_dict(copied.ptr(), item);
  } else if (PyTuple_Check(given) || PyList_Check(given)) {
    is_read = read_sequence(given, item);
  } else {
    is_read = read_tensor(given, "0", {.before = "", .name = "", .after = "an item", .wanted = "numbers"}, item);
  }
  return is_read && check_generated_arguments(item);
}

bool Groups::read_tensor(PyObject* given, const std::string& name, const Label& label, Item& item) {
  item.names.push_back(name);
  return owners_.view(given, label, item.views.emplace_back()).has_value();
}

bool Groups::read_dict(PyObject* given, Item& item) {
  if (PyDict_GET_SIZE(given) == 0)
    return refuse("an item must contain at least one tensor, not an empty dict: %R", given);
  item.named = true;
  // Keeps references, because reading a value may run code that changes the dict.
  std::vector<std::pair<std::string, py::object>> tensors;
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  for (Py_ssize_t next = 0; PyDict_Next(given, &next, &key, &value) != 0;) {
    const char* name = PyUnicode_Check(key) ? PyUnicode_AsUTF8(key) : nullptr;
    if (name == nullptr) return refuse("the keys of an item must be argument names (str), not %R", key);
    tensors.emplace_back(name, py::reinterpret_borrow<py::object>(value));
  }
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return std::all_of(tensors.begin(), tensors.end(), [&](const auto& tensor) {
    const Label label{.before = "'", .name = tensor.first.c_str(), .after = "' of an item", .wanted = "numbers"};
    return read_tensor(tensor.second.ptr(), tensor.first, label, item);
  });
}

bool Groups::read_sequence(PyObject* given, Item& item) {
  if (PySequence_Fast_GET_SIZE(given) == 0)
    return refuse("an item must contain at least one tensor, not an empty sequence: %R", given);
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(given); ++i) {
    const std::string name = std::to_string(i);
    const Label label{.before = "tensor ", .name = name.c_str(), .after = " of an item", .wanted = "numbers"};
    if (!read_tensor(PySequence_Fast_GET_ITEM(given, i), name, label, item)) return false;
  }
  return true;
}

bool Groups::check_generated_arguments(const Item& item) const {
  for (const std::string* name : {&batcher_->options.mask, &batcher_->options.lengths}) {
    if (name->empty()) continue;
    if (item.named && std::find(item.names.begin(), item.names.end(), *name) != item.names.end()) {
      PyErr_Format(PyExc_TypeError, "an item has '%s', which is generated from its length: leave it out of the item",
                   name->c_str());
      return false;
    }
    if (std::all_of(item.views.begin(), item.views.end(), [](const auto& view) { return view.sizes.rank() == 0; })) {
      PyErr_Format(PyExc_TypeError, "an item has no dimension, so '%s' cannot be generated from its length",
                   name->c_str());
      return false;
    }
  }
  return true;
}

bool Groups::fit_together(const Item& a, const Item& b) const {
  if (a.key != b.key || a.named != b.named || a.names != b.names) return false;
  const std::size_t first_fixed = batcher_->options.collate.pad ? 1 : 0;
  for (std::size_t i = 0; i < a.views.size(); ++i) {
    const auto mine = a.views[i].sizes.values();
    const auto theirs = b.views[i].sizes.values();
    if (a.views[i].dtype != b.views[i].dtype || mine.size() != theirs.size()) return false;
    if (!mine.empty() && !std::ranges::equal(mine.subspan(first_fixed), theirs.subspan(first_fixed))) return false;
  }
  return true;
}

std::vector<std::vector<std::size_t>> Groups::places() const {
  std::vector<std::vector<std::size_t>> places;
  for (const std::vector<Item>& group : groups_) {
    std::vector<std::size_t>& own = places.emplace_back();
    for (const Item& item : group) own.push_back(item.index);
  }
  return places;
}

// --- collating ---

// The input of a Collator for one group. If items are padded, the first dimension of each tensor is a symbol.
struct Groups::Plan {
  native::Signature signature;
  native::CollateOptions collate;
  std::vector<std::int64_t> extents;  // the sizes of the symbols of each item, concatenated
  std::vector<Collator::Item> items;
};

Groups::Plan Groups::plan_for(const std::vector<Item>& items) const {
  const BatcherOptions& options = batcher_->options;
  Plan plan;
  plan.collate = options.collate;
  const Item& front = items.front();
  std::vector<std::size_t> sequences;  // indices of the tensors with a symbol
  for (std::size_t i = 0; i < front.views.size(); ++i) {
    const native::TensorView& view = front.views[i];
    native::TensorSpec& spec = plan.signature.inputs.emplace_back();
    spec.name = front.names[i];
    spec.dtype = view.dtype;
    for (const std::int64_t size : view.sizes.values()) spec.dimensions.push_back({.size = size});
    if (options.collate.pad && view.sizes.rank() > 0) {
      spec.dimensions.front().symbol = static_cast<int>(sequences.size());
      plan.signature.symbols.push_back({.name = spec.name, .min = 0});
      sequences.push_back(i);
    }
    const auto own = options.pad_values.find(spec.name);
    const double pad = own != options.pad_values.end() ? own->second : options.pad_value;
    plan.collate.pad_values.push_back(pad != 0 ? scalar_from(pad, spec.dtype) : native::Scalar{});
  }
  if (!options.mask.empty()) {
    plan.collate.mask = static_cast<int>(plan.signature.inputs.size());
    plan.signature.inputs.push_back(
        {.name = options.mask, .dtype = native::Dtype::kInt64, .dimensions = {{.symbol = 0}}});
  }
  if (!options.lengths.empty()) {
    plan.collate.lengths = static_cast<int>(plan.signature.inputs.size());
    plan.signature.inputs.push_back({.name = options.lengths, .dtype = native::Dtype::kInt64, .dimensions = {}});
  }
  for (const Item& item : items) {
    for (const std::size_t i : sequences) plan.extents.push_back(item.views[i].sizes[0]);
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    plan.items.push_back({.tensors = items[i].views.data(), .extents = plan.extents.data() + i * sequences.size()});
  }
  return plan;
}

py::tuple Groups::collate(std::size_t group) {
  const std::vector<Item>& items = groups_.at(group);
  std::vector<std::shared_ptr<std::byte>> inputs;
  std::size_t bytes = 0;
  try {
    const Plan plan = plan_for(items);
    Collator collator(plan.signature, plan.collate);
    const std::span<Collator::Tensor> tensors = collator.arrange(plan.items);
    for (Collator::Tensor& tensor : tensors) {
      inputs.push_back(batcher_->buffers.take(inputs.size(), tensor));
      tensor.data = inputs.back().get();
      bytes += native::bytes_of(tensor);
    }
    // Safe without the GIL: `inputs` references the buffers, and owners_ the items.
    const auto fill = [&] { collator.fill(plan.items); };
    bytes >= kMinBytesWithoutGil ? without_gil(fill) : fill();

    py::list positional;
    py::dict by_name;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      py::object tensor = wrapped(std::move(inputs[i]), tensors[i]);
      const bool generated = i >= items.front().views.size();
      if (generated || items.front().named) {
        by_name[plan.signature.inputs[i].name.c_str()] = std::move(tensor);
      } else {
        positional.append(std::move(tensor));
      }
    }
    if (plan.signature.symbols.empty()) return py::make_tuple(positional, by_name, py::none(), py::none());
    py::list lengths;
    for (const Collator::Item& item : plan.items) lengths.append(item.extents[0]);
    return py::make_tuple(positional, by_name, collator.extents()[0], lengths);
  } catch (const py::error_already_set&) {
    throw;
  } catch (const std::exception& error) {
    set_run_error(error);
    throw py::error_already_set();
  }
}

}  // namespace service_streamer::bindings
