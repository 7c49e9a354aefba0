#include <atomic>
#include <memory>
#include <new>

#include "bindings/pickling/codec.h"
#include "bindings/python/errors.h"
#include "bindings/python/fork.h"

// The items of callers of this process, and the pool of shared memory that their buffers go into.

namespace service_streamer::bindings {
namespace {

std::atomic<std::shared_ptr<ipc::SharedPool>*> callers_pool{nullptr};

// In a forked child: the pool is the parent's.
void forget_pool() {
  callers_pool = nullptr;
}

// Throws std::bad_alloc.
const std::shared_ptr<ipc::SharedPool>& pool_of_callers() {
  static const bool watches = at_fork_in_child(forget_pool);
  if (!watches) throw std::bad_alloc();
  std::shared_ptr<ipc::SharedPool>* pool = callers_pool.load(std::memory_order_acquire);
  if (pool != nullptr) return *pool;
  auto made = std::make_unique<std::shared_ptr<ipc::SharedPool>>(ipc::SharedPool::make());
  return callers_pool.compare_exchange_strong(pool, made.get()) ? *made.release() : *pool;
}

// Turns what pickling an item raised into an exception that names the item, if the item is the cause. Returns false.
bool refuse_item(Py_ssize_t index, PyObject* item) {
  if (!PyErr_ExceptionMatches(PyExc_Exception) || PyErr_ExceptionMatches(PyExc_MemoryError)) return false;
  PyObject* error = take_exception();
  PyObject* arguments = Py_BuildValue("(nO)", index, item);
  PyObject* none = arguments != nullptr ? python::refuse_item(error, arguments) : nullptr;
  Py_XDECREF(none);
  Py_XDECREF(arguments);
  Py_DECREF(error);
  return false;
}

}  // namespace

bool encode_items(PyObject* items, ipc::Payload& payload, bool inline_items) {
  Encoder* encoder = nullptr;
  const CaughtError failure = attempt([&] { encoder = begin_encoding(inline_items ? nullptr : pool_of_callers()); });
  if (failure.raise() || encoder == nullptr) return false;
  bool encoded = true;
  for (Py_ssize_t i = 0; encoded && i < PyTuple_GET_SIZE(items); ++i) {
    encoded = encode(encoder, PyTuple_GET_ITEM(items, i)) || refuse_item(i, PyTuple_GET_ITEM(items, i));
  }
  encoded = encoded && finish(encoder, payload);
  end_encoding(encoder);
  return encoded;
}

}  // namespace service_streamer::bindings
