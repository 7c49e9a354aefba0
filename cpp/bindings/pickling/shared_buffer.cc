#include "bindings/pickling/shared_buffer.h"

#include <utility>

#include "bindings/python/errors.h"
#include "bindings/python/fork.h"

namespace service_streamer::bindings {
namespace {

struct SharedBufferObject {
  PyObject_HEAD
  ipc::PrivateMapping* mapping;
  std::uint32_t fork_generation;
};

PyTypeObject* shared_buffer_type = nullptr;

SharedBufferObject* self_of(PyObject* self) {
  return reinterpret_cast<SharedBufferObject*>(self);
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  const ipc::PrivateMapping* mapping = self_of(self)->mapping;
  return PyBuffer_FillInfo(view, self, mapping->data(), static_cast<Py_ssize_t>(mapping->size()), 0, flags);
}

// In a forked child the mapping stays: only the parent may tell the owner of the block that it is not used any more.
void shared_buffer_dealloc(PyObject* self) {
  if (self_of(self)->fork_generation == fork_generation()) delete self_of(self)->mapping;
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("A large buffer that came from another process.")},
    {Py_tp_dealloc, reinterpret_cast<void*>(shared_buffer_dealloc)},
    {Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
    {0, nullptr},
};

PyType_Spec spec = {"service_streamer._core.SharedBuffer", sizeof(SharedBufferObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

}  // namespace

bool make_shared_buffer_type(PyObject* module) {
  shared_buffer_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return shared_buffer_type != nullptr && PyModule_AddType(module, shared_buffer_type) == 0;
}

PyObject* make_shared_buffer(ipc::BlockRef block) {
  // The descriptors of the parent are closed in a forked child, and their numbers may name other files.
  if (block->inherited()) {
    return raise_message(python::streamer_closed, "a large result must be read before the process forks");
  }
  PyObject* self = shared_buffer_type->tp_alloc(shared_buffer_type, 0);
  if (self == nullptr) return nullptr;
  self_of(self)->fork_generation = fork_generation();
  const CaughtError failure = attempt([&] { self_of(self)->mapping = new ipc::PrivateMapping(std::move(block)); });
  if (failure.raise()) Py_CLEAR(self);
  return self;
}

std::string_view text_of_shared_buffer(PyObject* buffer) {
  const ipc::PrivateMapping* mapping = self_of(buffer)->mapping;
  return {static_cast<const char*>(mapping->data()), mapping->size()};
}

}  // namespace service_streamer::bindings
