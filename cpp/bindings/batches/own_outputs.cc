#include "bindings/batches/own_outputs.h"

#include <pybind11/numpy.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iterator>
#include <new>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "bindings/python/errors.h"
#include "bindings/python/free_threading.h"
#include "bindings/python/libraries.h"
#include "bindings/python/name.h"

namespace service_streamer::bindings {
namespace {

constexpr int kDeepest = 4;                // containers within one another
constexpr Py_ssize_t kLongestRecord = 32;  // members; a longer tuple or dict is taken for a row of numbers

Name storage_name{"untyped_storage"};
Name address_name{"_cdata"};
Name base_name{"_base"};

enum class Kind : std::uint8_t { kOther, kArray, kTensor, kContainer };

Kind kind_of(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (type == &PyFloat_Type || type == &PyLong_Type || type == &PyUnicode_Type || object == Py_None) {
    return Kind::kOther;
  }
  PyTypeObject* array = numpy_array_class();
  PyTypeObject* tensor = torch_tensor_class();
  if (array != nullptr && PyType_IsSubtype(type, array)) return Kind::kArray;
  if (tensor != nullptr && PyType_IsSubtype(type, tensor)) return Kind::kTensor;
  const bool contains = PyList_CheckExact(object) || PyTuple_Check(object) || PyDict_Check(object);
  return contains ? Kind::kContainer : Kind::kOther;
}

// Calls a function for each member of a container that may have arrays.
template <typename Function>
void for_each_member(PyObject* container, int depth, Function function) {
  if (PyDict_Check(container)) {
    if (PyDict_GET_SIZE(container) > kLongestRecord) return;
    Py_ssize_t place = 0;
    PyObject* value;
    while (PyDict_Next(container, &place, nullptr, &value)) function(value);
    return;
  }
  const Py_ssize_t size = PySequence_Fast_GET_SIZE(container);
  PyObject** const members = PySequence_Fast_ITEMS(container);
  // the numbers of an item, if they are in a list, are all alike
  const bool alike = depth > 0 && (PyList_CheckExact(container) || size > kLongestRecord);
  if (size == 0 || (alike && kind_of(members[0]) == Kind::kOther)) return;
  for (Py_ssize_t i = 0; i < size; ++i) function(members[i]);
}

PyObject* base_of(PyObject* array) {
  return pybind11::detail::array_proxy(array)->base;
}

bool is_writable(PyObject* array) {
  return (pybind11::detail::array_proxy(array)->flags & pybind11::detail::npy_api::NPY_ARRAY_WRITEABLE_) != 0;
}

// The storage of a tensor, and how many tensors use it. The address is 0 if it has none, as a sparse tensor.
struct Storage {
  std::uintptr_t address = 0;
  Py_ssize_t users = 0;
};

Storage storage_of(PyObject* tensor) {
  static std::atomic<PyObject*> function{nullptr};
  PyObject* count = function.load(std::memory_order_acquire);
  if (count == nullptr) function = count = import_member("torch._C", "_storage_Use_Count");  // kept for good
  PyObject* storage = PyObject_CallMethodNoArgs(tensor, storage_name);
  PyObject* address = storage != nullptr ? PyObject_GetAttr(storage, address_name) : nullptr;
  PyObject* users = address != nullptr && count != nullptr ? PyObject_CallOneArg(count, address) : nullptr;
  Storage found;
  if (users != nullptr) {
    found.address = static_cast<std::uintptr_t>(PyLong_AsUnsignedLongLong(address));
    found.users = PyLong_AsSsize_t(users) - 1;  // without `storage`
  }
  Py_XDECREF(users);
  Py_XDECREF(address);
  Py_XDECREF(storage);
  PyErr_Clear();
  return found;
}

// The tensor that a tensor is a view of, a new reference; nullptr: it is none.
PyObject* viewed_by(PyObject* tensor) {
  PyObject* base = PyObject_GetAttr(tensor, base_name);
  if (base == Py_None) Py_CLEAR(base);
  PyErr_Clear();
  return base;
}

// How many references a tensor has that only viewed_by() and a view of it know of; it depends on torch.
Py_ssize_t references_of_viewed(PyObject* tensor) {
  static std::atomic<Py_ssize_t> known{0};
  Py_ssize_t references = known.load(std::memory_order_relaxed);
  if (references > 0) return references;
  PyObject* own = PyObject_CallMethod(tensor, "new_empty", "((i))", 1);
  PyObject* view = own != nullptr ? PyObject_CallMethod(own, "unsqueeze", "i", 0) : nullptr;
  Py_XDECREF(own);
  PyObject* base = view != nullptr ? viewed_by(view) : nullptr;
  if (base != nullptr) known = references = Py_REFCNT(base);
  Py_XDECREF(base);
  Py_XDECREF(view);
  PyErr_Clear();
  return references > 0 ? references : 1;
}

// The references to the memory of arrays and tensors that were looked at.
class References {
 public:
  References() = default;
  ~References() {
    for (PyObject* each : snapshots_) Py_DECREF(each);
  }
  References(const References&) = delete;
  References& operator=(const References&) = delete;

  // Looks at an object, and at what is in it. `kept`: others refer to its container.
  void look(PyObject* object, int depth = 0, bool kept = false) {
    const Kind kind = kind_of(object);
    if (kind == Kind::kContainer && depth < kDeepest) {
      kept = kept || Py_REFCNT(object) > 1;
      if (!kHasGil && kept) object = snapshot(object);
      for_each_member(object, depth, [&](PyObject* member) { look(member, depth + 1, kept); });
    } else if (kind == Kind::kArray || kind == Kind::kTensor) {
      const bool alone = kind == Kind::kArray && Py_REFCNT(object) == 1 && base_of(object) == nullptr;
      if (alone && !kept) return;  // as most arrays
      add(object, kind);
      if (kept) owners_[key(object)].held = kMany;
      leaves_.push_back(object);
    }
  }

  // The arrays and tensors whose memory others refer to, but not what `items` refer to.
  std::unordered_set<PyObject*> shared(PyObject* items) const {
    std::unordered_set<PyObject*> found;
    const auto is_held = [](const Owner& owner) { return owner.held > owner.explained; };
    std::ranges::copy_if(leaves_, std::inserter(found, found.end()),
                         [&](PyObject* leaf) { return any_owner(leaf, is_held); });
    if (found.empty() || items == nullptr) return found;
    References callers;
    callers.look(items, 0, true);
    std::erase_if(found, [&](PyObject* leaf) {
      return any_owner(leaf, [&](const Owner& owner) { return callers.owners_.contains(owner.key); });
    });
    return found;
  }

 private:
  static constexpr Py_ssize_t kMany = PY_SSIZE_T_MAX;

  // An array or tensor, the base of an array, or the storage of a tensor.
  struct Owner {
    std::uintptr_t key = 0;
    std::uintptr_t next = 0;   // the owner of its memory; 0: itself
    Py_ssize_t held = 0;       // how many refer to it
    Py_ssize_t explained = 0;  // how many of those were looked at
  };

  // The members of a container that other threads may change meanwhile.
  PyObject* snapshot(PyObject* container) {
    const bool dict = PyDict_CheckExact(container);
    if (!dict && !PyList_CheckExact(container)) return container;
    snapshots_.reserve(snapshots_.size() + 1);
    PyObject* copy = dict ? PyDict_Copy(container) : PyList_GetSlice(container, 0, PY_SSIZE_T_MAX);
    if (copy == nullptr) throw std::bad_alloc();
    snapshots_.push_back(copy);
    return copy;
  }

  static std::uintptr_t key(PyObject* object) { return reinterpret_cast<std::uintptr_t>(object); }

  // Counts one reference. Returns true if it is the first one.
  bool count(std::uintptr_t address, Py_ssize_t held) {
    Owner& owner = owners_[address];
    if (owner.explained++ > 0) return false;
    owner.key = address;
    owner.held = held;
    return true;
  }

  void add(PyObject* object, Kind kind) {
    if (!count(key(object), Py_REFCNT(object))) return;
    if (kind == Kind::kTensor) {
      owners_[key(object)].next = add_memory(object);
      return;
    }
    PyObject* base = base_of(object);
    const Kind kind_of_base = base != nullptr ? kind_of(base) : Kind::kOther;
    if (base == nullptr) return;
    if (kind_of_base == Kind::kArray || kind_of_base == Kind::kTensor) {
      add(base, kind_of_base);
    } else if (is_writable(object) && !PyBytes_Check(base)) {
      count(key(base), kMany);  // of another library
    } else {
      return;
    }
    owners_[key(object)].next = key(base);
  }

  // Counts a tensor with its storage. Returns what owns its memory.
  std::uintptr_t add_memory(PyObject* tensor) {
    PyObject* viewed = viewed_by(tensor);
    const std::uintptr_t address = key(viewed);
    if (viewed == nullptr || count(address, 0)) {
      const Storage storage = storage_of(tensor);
      if (storage.address != 0) count(storage.address, storage.users);
      if (viewed == nullptr) return storage.address;
      if (storage.address != 0) count(storage.address, storage.users);
      owners_[address].next = storage.address;
      if (Py_REFCNT(viewed) > references_of_viewed(viewed)) owners_[address].held = kMany;
    } else if (const std::uintptr_t storage = owners_[address].next; storage != 0) {
      ++owners_[storage].explained;
    }
    Py_DECREF(viewed);
    return address;
  }

  template <typename Predicate>
  bool any_owner(PyObject* leaf, Predicate predicate) const {
    for (std::uintptr_t address = key(leaf); address != 0;) {
      const Owner& owner = owners_.at(address);
      if (predicate(owner)) return true;
      address = owner.next;
    }
    return false;
  }

  std::unordered_map<std::uintptr_t, Owner> owners_;
  std::vector<PyObject*> leaves_;
  std::vector<PyObject*> snapshots_;
};

PyObject* with_copies(PyObject* object, const std::unordered_set<PyObject*>& shared, int depth);

// A list of the members, with copies.
PyObject* members_with_copies(PyObject* container, const std::unordered_set<PyObject*>& shared, int depth) {
  PyObject* members = PyDict_Check(container) ? PyDict_Values(container) : PySequence_List(container);
  for (Py_ssize_t i = 0; members != nullptr && i < PyList_GET_SIZE(members); ++i) {
    PyObject* member = with_copies(PyList_GET_ITEM(members, i), shared, depth + 1);
    if (member == nullptr) {
      Py_CLEAR(members);
    } else {
      PyObject* before = PyList_GET_ITEM(members, i);
      PyList_SET_ITEM(members, i, member);
      Py_DECREF(before);
    }
  }
  return members;
}

// A new reference to the object, or to one of the same type with copies in place of the shared ones.
PyObject* with_copies(PyObject* object, const std::unordered_set<PyObject*>& shared, int depth) {
  const Kind kind = kind_of(object);
  if (shared.contains(object)) return PyObject_CallMethod(object, kind == Kind::kTensor ? "clone" : "copy", nullptr);
  if (kind != Kind::kContainer || depth == kDeepest) return Py_NewRef(object);
  bool any = false;
  {
    const Locked lock(object);
    for_each_member(object, depth, [&](PyObject* member) {
      any = any || shared.contains(member) || kind_of(member) == Kind::kContainer;
    });
  }
  if (!any) return Py_NewRef(object);
  PyObject* members = members_with_copies(object, shared, depth);
  if (members == nullptr || PyList_CheckExact(object)) return members;
  PyObject* made = python::rebuilt(object, members);
  Py_DECREF(members);
  return made;
}

}  // namespace

PyObject* own_outputs(PyObject* outputs, PyObject* items) {
  if ((numpy_array_class() == nullptr && torch_tensor_class() == nullptr) || kind_of(outputs) == Kind::kOther) {
    return outputs;
  }
  PyObject* owned = nullptr;
  const CaughtError failure = attempt([&] {
    References references;
    references.look(outputs);
    const std::unordered_set<PyObject*> shared = references.shared(items);
    owned = shared.empty() ? Py_NewRef(outputs) : with_copies(outputs, shared, 0);
  });
  Py_DECREF(outputs);
  return failure.raise() ? nullptr : owned;
}

}  // namespace service_streamer::bindings
