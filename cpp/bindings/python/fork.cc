#include "bindings/python/fork.h"

#include <Python.h>
#include <pthread.h>

#include "bindings/futures/callbacks.h"
#include "bindings/pickling/codec.h"
#include "service_streamer/native/workers.h"

namespace service_streamer::bindings {
namespace {

std::uint32_t generation = 0;

void after_fork_in_child() {
  ++generation;
  forget_callbacks_thread();
  forget_pool();
  native::Workers::reset_after_fork();
}

}  // namespace

std::uint32_t fork_generation() {
  return generation;
}

bool watch_forks() {
  if (pthread_atfork(nullptr, nullptr, after_fork_in_child) == 0) return true;
  PyErr_NoMemory();
  return false;
}

}  // namespace service_streamer::bindings
