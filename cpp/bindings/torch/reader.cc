#include "bindings/torch/reader.h"

#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/leftovers.h"
#include "service_streamer/torch/dtypes.h"

namespace service_streamer::bindings {
namespace {

using native::Refusal;
using native::Signature;
using native::Structure;
using native::TensorSpec;
using native::TensorView;

// The tensors of a request, and the objects and buffers that they lie in.
class ReadItems final : public native::TensorItems, public Leftover {
 public:
  ~ReadItems() override {
    for (Py_buffer& buffer : buffers) PyBuffer_Release(&buffer);
    for (PyObject* owner : owners) Py_DECREF(owner);
  }

  void retire() noexcept override { leave(this); }

  std::vector<PyObject*> owners;
  std::deque<Py_buffer> buffers;  // in place: some exporters have pointers into them
};

const char* name_of_type(PyObject* object) {
  return Py_TYPE(object)->tp_name;
}

// A number type of the struct module, native byte order; those that depend on the machine by their size.
std::optional<native::Dtype> dtype_of_format(const char* format, Py_ssize_t size) {
  using native::Dtype;
  if (format == nullptr) return Dtype::kUint8;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  const std::string_view code(format);
  if (code == "?") return Dtype::kBool;
  if (code == "B") return Dtype::kUint8;
  if (code == "b") return Dtype::kInt8;
  if (code == "e") return Dtype::kFloat16;
  if (code == "f") return Dtype::kFloat32;
  if (code == "d") return Dtype::kFloat64;
  if (code == "Zf") return Dtype::kComplex64;
  if (code == "Zd") return Dtype::kComplex128;
  if (code == "h" || code == "i" || code == "l" || code == "q") {
    if (size == 2) return Dtype::kInt16;
    if (size == 4) return Dtype::kInt32;
    if (size == 8) return Dtype::kInt64;
  }
  return std::nullopt;
}

class Reader {
 public:
  Reader(const torch_backend::Model& model, ReadItems& into)
      : signature_(model.signature()), collate_(model.options().collate), into_(into) {
    for (std::size_t i = 0; i < signature_.inputs.size(); ++i) {
      const bool made = std::cmp_equal(i, collate_.mask) || std::cmp_equal(i, collate_.lengths);
      if (!made) given_.push_back(&signature_.inputs[i]);
    }
  }

  // False with an exception set.
  bool read_item(PyObject* item) {
    const std::size_t symbols = signature_.symbols.size();
    into_.extents.insert(into_.extents.end(), symbols, -1);
    extents_ = std::span(into_.extents).last(symbols);
    switch (signature_.input_structure) {
      case Structure::kTensor:
        return read_tensor(item, *given_.front());
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
                      PySequence_Fast_GET_SIZE(item) == static_cast<Py_ssize_t>(given_.size());
    if (!fits) return refuse_item(item, "a tuple of ");
    for (std::size_t i = 0; i < given_.size(); ++i) {
      if (!read_tensor(PySequence_Fast_GET_ITEM(item, static_cast<Py_ssize_t>(i)), *given_[i])) return false;
    }
    return true;
  }

  bool read_dict(PyObject* item) {
    if (!PyDict_Check(item) || PyDict_GET_SIZE(item) != static_cast<Py_ssize_t>(given_.size())) {
      return refuse_item(item, "a dict of ");
    }
    for (const TensorSpec* input : given_) {
      PyObject* tensor = PyDict_GetItemString(item, input->name.c_str());
      if (tensor == nullptr) return refuse_item(item, "a dict of ");
      if (!read_tensor(tensor, *input)) return false;
    }
    return true;
  }

  bool refuse_item(PyObject* item, const char* wanted) {
    std::string names;
    for (const TensorSpec* input : given_) names += (names.empty() ? "'" : ", '") + input->name + "'";
    PyObject* came = PyDict_Check(item) ? PyDict_Keys(item) : Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(item)));
    if (came == nullptr) return false;
    PyErr_Format(PyExc_TypeError, "an item must be %s%zu tensors, %s, got %R", wanted, given_.size(), names.c_str(),
                 came);
    Py_DECREF(came);
    return false;
  }

  bool read_tensor(PyObject* object, const TensorSpec& input) {
    TensorView view;
    if (!(THPVariable_Check(object) ? view_tensor(object, input, view) : view_buffer(object, input, view))) {
      return false;
    }
    const std::optional<Refusal> refusal = native::check_tensor(signature_, input, view, collate_.pad, extents_);
    if (refusal) {
      PyErr_SetString(refusal->wrong_type ? PyExc_TypeError : PyExc_ValueError, refusal->message.c_str());
      return false;
    }
    into_.views.push_back(view);
    return true;
  }

  bool view_tensor(PyObject* object, const TensorSpec& input, TensorView& view) {
    const at::Tensor& tensor = THPVariable_Unpack(object);
    const bool plain = tensor.layout() == c10::kStrided && !tensor.unsafeGetTensorImpl()->is_python_dispatch() &&
                       !tensor.is_conj() && !tensor.is_neg();
    if (!plain || !tensor.device().is_cpu()) {
      const std::string device = tensor.device().str();
      PyErr_Format(PyExc_TypeError, "input '%s' of an item is a %s tensor on %s, the model wants a dense one on cpu",
                   input.name.c_str(), plain ? "dense" : "special", device.c_str());
      return false;
    }
    if (!torch_backend::dtype_of(tensor.scalar_type(), view.dtype)) {
      return refuse_dtype(input, c10::toString(tensor.scalar_type()));
    }
    if (!fits_rank(tensor.dim(), input)) return false;
    for (std::int64_t i = 0; i < tensor.dim(); ++i) {
      view.sizes.push_back(tensor.size(i));
      view.strides.push_back(tensor.stride(i) * static_cast<std::int64_t>(tensor.element_size()));
    }
    view.data = static_cast<const std::byte*>(tensor.const_data_ptr());
    into_.owners.push_back(Py_NewRef(object));
    return true;
  }

  bool view_buffer(PyObject* object, const TensorSpec& input, TensorView& view) {
    if (!PyObject_CheckBuffer(object) || PyBytes_Check(object)) {
      PyErr_Format(PyExc_TypeError, "input '%s' of an item must be a tensor or an array of %s, got %.200s",
                   input.name.c_str(), native::to_string(input.dtype), name_of_type(object));
      return false;
    }
    Py_buffer& buffer = into_.buffers.emplace_back();
    if (PyObject_GetBuffer(object, &buffer, PyBUF_STRIDES | PyBUF_FORMAT) < 0) {
      into_.buffers.pop_back();
      return refuse_dtype(input, name_of_type(object));
    }
    const std::optional<native::Dtype> dtype = dtype_of_format(buffer.format, buffer.itemsize);
    if (!dtype) return refuse_dtype(input, buffer.format);
    if (!fits_rank(buffer.ndim, input)) return false;
    view.dtype = *dtype;
    for (int i = 0; i < buffer.ndim; ++i) {
      view.sizes.push_back(buffer.shape[i]);
      view.strides.push_back(buffer.strides[i]);
    }
    view.data = static_cast<const std::byte*>(buffer.buf);
    return true;
  }

  static bool refuse_dtype(const TensorSpec& input, const char* came) {
    PyErr_Format(PyExc_TypeError, "input '%s' of an item is %s, the model wants %s", input.name.c_str(), came,
                 native::to_string(input.dtype));
    return false;
  }

  static bool fits_rank(std::int64_t rank, const TensorSpec& input) {
    if (std::cmp_less_equal(rank, native::kMostDimensions)) return true;
    PyErr_Format(PyExc_TypeError, "input '%s' of an item has %lld dimensions, the model wants %zu", input.name.c_str(),
                 static_cast<long long>(rank), input.dimensions.size());
    return false;
  }

  const Signature& signature_;
  const native::CollateOptions& collate_;
  ReadItems& into_;
  std::vector<const TensorSpec*> given_;
  std::span<std::int64_t> extents_;  // of the item under way
};

}  // namespace

native::ItemsRef read_items(PyObject* items, const torch_backend::Model& model) {
  auto read = std::make_unique<ReadItems>();
  Reader reader(model, *read);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items); ++i) {
    if (!reader.read_item(PyTuple_GET_ITEM(items, i))) return nullptr;
  }
  return native::ItemsRef(read.release());
}

}  // namespace service_streamer::bindings
