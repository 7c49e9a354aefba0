#include "bindings/python/arguments.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/python/errors.h"
#include "bindings/python/libraries.h"

namespace service_streamer::bindings {
namespace {

// A longer wait has no end. A century in nanoseconds fits into 63 bits.
constexpr double kForever = 3e9;

// Raises the TypeError for a batch that is none.
PyObject* refuse_batch(PyObject* batch, PyObject* remedy) {
  PyObject* value = python::short_text(batch);
  if (value != nullptr) {
    raise_mistake(PyExc_TypeError, "a-batch-that-is-no-sequence",
                  "batch must be a sequence of items, got the %.200s %U: %U", Py_TYPE(batch)->tp_name, value, remedy);
  }
  Py_XDECREF(value);
  return nullptr;
}

// The same; the hint may have one %U, for the value.
PyObject* refuse_batch(PyObject* batch, const char* hint) {
  PyObject* value = python::short_text(batch);
  PyObject* remedy = value != nullptr ? PyUnicode_FromFormat(hint, value) : nullptr;
  Py_XDECREF(value);
  if (remedy != nullptr) refuse_batch(batch, remedy);
  Py_XDECREF(remedy);
  return nullptr;
}

// Raises the TypeError for a mapping, a frame or the like, whose elements are not the items.
bool refuse_columns(PyObject* batch) {
  if (Py_TYPE(batch) == numpy_array_class() || Py_TYPE(batch) == torch_tensor_class()) return false;
  PyObject* remedy = python::batch_remedy(batch);
  if (remedy != nullptr && remedy != Py_None) refuse_batch(batch, remedy);
  const bool refused = remedy != Py_None;
  Py_XDECREF(remedy);
  return refused;
}

// A tensor is not a sequence for Python: its class has only the slot of a mapping.
bool can_be_indexed(PyObject* batch) {
  const PyMappingMethods* mapping = Py_TYPE(batch)->tp_as_mapping;
  return PySequence_Check(batch) || (mapping != nullptr && mapping->mp_subscript != nullptr);
}

// A tuple of the elements. What only has __getitem__ is indexed: a dataset may raise no IndexError at its end.
PyObject* elements_of(PyObject* batch, Py_ssize_t length) {
  if (Py_TYPE(batch)->tp_iter != nullptr) return PySequence_Tuple(batch);
  PyObject* elements = PyTuple_New(length);
  for (Py_ssize_t i = 0; elements != nullptr && i < length; ++i) {
    PyObject* element = PySequence_GetItem(batch, i);
    if (element == nullptr) {
      Py_CLEAR(elements);
    } else {
      PyTuple_SET_ITEM(elements, i, element);
    }
  }
  return elements;
}

}  // namespace

PyObject* items_from(PyObject* batch) {
  if (PyList_CheckExact(batch)) return PyList_AsTuple(batch);
  if (PyTuple_CheckExact(batch)) return Py_NewRef(batch);
  if (PyIter_Check(batch)) return refuse_batch(batch, "it has no length, so pass list(...) or use map(...)");
  const bool is_text = PyUnicode_Check(batch) || PyBytes_Check(batch) || PyByteArray_Check(batch);
  if (is_text) return refuse_batch(batch, "did you mean [%U]?");
  if (refuse_columns(batch)) return nullptr;
  if (!can_be_indexed(batch)) {
    const bool iterates = Py_TYPE(batch)->tp_iter != nullptr;  // such as a set
    return refuse_batch(batch, iterates ? "it cannot be indexed, so pass list(...)" : "did you mean [%U]?");
  }
  const Py_ssize_t length = PyObject_Size(batch);
  if (length < 0) {
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) return nullptr;
    PyErr_Clear();
    return refuse_batch(batch, "did you mean [%U]?");
  }
  PyObject* items = elements_of(batch, length);
  if (items != nullptr && PyTuple_GET_SIZE(items) != length) {
    PyErr_Format(PyExc_TypeError, "batch must be a sequence of items, got %.200s with len() %zd that iterates over %zd",
                 Py_TYPE(batch)->tp_name, length, PyTuple_GET_SIZE(items));
    Py_CLEAR(items);
  }
  return items;
}

PyObject* item_list_from(PyObject* batch) {
  if (PyList_CheckExact(batch)) return PyList_GetSlice(batch, 0, PyList_GET_SIZE(batch));
  PyObject* items = items_from(batch);
  PyObject* list = items != nullptr ? PySequence_List(items) : nullptr;
  Py_XDECREF(items);
  return list;
}

bool deadline_from(PyObject* timeout, TimePoint& deadline, Negative negative) {
  deadline = TimePoint::max();
  if (timeout == Py_None) return true;
  const double seconds = PyLong_CheckExact(timeout) ? PyLong_AsDouble(timeout) : PyFloat_AsDouble(timeout);
  if (seconds == -1.0 && PyErr_Occurred()) {
    if (PyErr_ExceptionMatches(PyExc_TypeError)) {
      PyErr_Format(PyExc_TypeError, "timeout must be a number of seconds, got %.200s", Py_TYPE(timeout)->tp_name);
    }
    return false;
  }
  if (std::isnan(seconds) || (seconds < 0 && negative == Negative::kIsWrong)) {
    PyErr_Format(PyExc_ValueError, "timeout must be a number of seconds >= 0, got %R", timeout);
    return false;
  }
  if (seconds < kForever) deadline = Clock::now() + duration_from(std::max(seconds, 0.0));
  return true;
}

bool priority_from(PyObject* value, int& priority) {
  if (!PyIndex_Check(value)) {
    PyErr_Format(PyExc_TypeError, "priority must be an int, got %.200s", Py_TYPE(value)->tp_name);
    return false;
  }
  int overflow = 0;
  PyObject* index = PyNumber_Index(value);
  if (index == nullptr) return false;
  const long number = PyLong_AsLongAndOverflow(index, &overflow);
  Py_DECREF(index);
  if (overflow != 0 || number < INT_MIN || number > INT_MAX) {
    PyErr_Format(PyExc_ValueError, "priority must fit into 32 bits, got %R", value);
    return false;
  }
  priority = static_cast<int>(number);
  return true;
}

// Copies an array with an entry for each item from bytes, or nothing from None.
template <typename T>
static bool array_from(PyObject* value, std::uint32_t size, std::vector<T>& array) {
  if (value == Py_None) return true;
  char* bytes;
  Py_ssize_t length;
  if (PyBytes_AsStringAndSize(value, &bytes, &length) < 0) return false;
  if (static_cast<std::size_t>(length) != size * sizeof(T)) {
    PyErr_SetString(PyExc_ValueError, "the keys and weights of a request are as many as its items");
    return false;
  }
  if (attempt([&] { array.resize(size); }).raise()) return false;
  if (size > 0) std::memcpy(array.data(), bytes, static_cast<std::size_t>(length));
  return true;
}

// The name of a tenant; empty for None.
static bool tenant_from(PyObject* value, std::string_view& name) {
  constexpr Py_ssize_t kMaxCharacters = kMaxTenant / 4;  // a character has at most four bytes
  if (value == Py_None) return true;
  if (!PyUnicode_Check(value)) {
    PyErr_Format(PyExc_TypeError, "tenant must be a str, got %.200s", Py_TYPE(value)->tp_name);
    return false;
  }
  if (PyUnicode_GetLength(value) > kMaxCharacters) {
    PyErr_Format(PyExc_ValueError, "tenant must have at most %zd characters, got %R", kMaxCharacters, value);
    return false;
  }
  Py_ssize_t size;
  const char* text = PyUnicode_AsUTF8AndSize(value, &size);
  if (text != nullptr) name = {text, static_cast<std::size_t>(size)};
  return text != nullptr;
}

bool traits_from(PyObject* value, PyObject* tenant, std::uint32_t size, std::shared_ptr<const ItemTraits>& traits,
                 PyObject*& order) {
  std::string_view name;
  if (!tenant_from(tenant, name)) return false;
  if (value == Py_None && name.empty()) return true;
  PyObject *keys = Py_None, *weights = Py_None, *indices = Py_None;
  if (value != Py_None && !PyArg_ParseTuple(value, "OOO", &keys, &weights, &indices)) return false;
  std::shared_ptr<ItemTraits> own;
  if (attempt([&] {
        own = std::make_shared<ItemTraits>();
        own->tenant = name;
      }).raise()) {
    return false;
  }
  if (!array_from(keys, size, own->keys) || !array_from(weights, size, own->weights)) return false;
  traits = std::move(own);
  if (indices != Py_None) order = Py_NewRef(indices);
  return true;
}

bool shares_from(PyObject* value, TenantShares& shares) {
  if (value == Py_None) return true;
  shares.others.reset();
  PyObject *key, *number;
  for (Py_ssize_t i = 0; PyDict_Next(value, &i, &key, &number);) {
    std::string_view name;
    const double share = PyFloat_AsDouble(number);
    if (PyErr_Occurred() != nullptr || !tenant_from(key, name)) return false;
    if (name == "*") {
      shares.others = share;
    } else if (attempt([&] { shares.named.emplace(name, share); }).raise()) {
      return false;
    }
  }
  return true;
}

bool choose(const char* name, const char* value, std::initializer_list<const char*> names, int& index) {
  index = 0;
  for (const char* candidate : names) {
    if (std::strcmp(value, candidate) == 0) return true;
    ++index;
  }
  PyErr_Format(PyExc_ValueError, "unknown %s: '%s'", name, value);
  return false;
}

static bool choose_policy(const char* value, PolicyKind& kind) {
  int index;
  if (!choose("policy", value, {"adaptive", "greedy", "window"}, index)) return false;
  kind = static_cast<PolicyKind>(index);
  return true;
}

bool set_batching(EngineOptions& options, Py_ssize_t batch_size, double max_latency, const char* policy) {
  if (batch_size < 1 || batch_size > UINT32_MAX || !(max_latency >= 0)) {
    PyErr_SetString(PyExc_ValueError, "batch_size or max_latency is out of range");
    return false;
  }
  options.batch_size = static_cast<std::size_t>(batch_size);
  options.max_latency = duration_from(max_latency);
  return choose_policy(policy, options.policy);
}

bool change_from(const GivenSettings& settings, EngineChange& change) {
  const auto given = [](PyObject* value) { return value != nullptr && value != Py_None; };
  const Py_ssize_t items = given(settings.batch_size) ? PyLong_AsSsize_t(settings.batch_size) : 1;
  const double max_latency = given(settings.max_latency) ? PyFloat_AsDouble(settings.max_latency) : 0.0;
  const char* name = given(settings.policy) ? PyUnicode_AsUTF8(settings.policy) : "greedy";
  const double slo = given(settings.slo) ? PyFloat_AsDouble(settings.slo) : 0.0;
  EngineOptions options;
  if (PyErr_Occurred() != nullptr || !set_batching(options, items, max_latency, name)) return false;
  if (!(slo >= 0)) {
    PyErr_SetString(PyExc_ValueError, "slo is out of range");
    return false;
  }
  if (given(settings.batch_size)) change.batch_size = options.batch_size;
  if (given(settings.max_latency)) change.max_latency = options.max_latency;
  if (given(settings.policy)) change.policy = options.policy;
  if (given(settings.slo)) change.slo = duration_from(slo);
  return true;
}

Duration duration_from(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(std::min(seconds, kForever)));
}

}  // namespace service_streamer::bindings
