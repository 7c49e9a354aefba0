#include "bindings/python/fork.h"

#include <Python.h>
#include <pthread.h>

namespace service_streamer::bindings {
namespace {

std::uint32_t generation = 0;

}  // namespace

std::uint32_t fork_generation() {
  return generation;
}

bool watch_forks() {
  return at_fork_in_child([] { ++generation; });
}

bool at_fork_in_child(void (*handler)()) {
  if (pthread_atfork(nullptr, nullptr, handler) == 0) return true;
  PyErr_NoMemory();
  return false;
}

}  // namespace service_streamer::bindings
