#include "bindings/python/deferred_delete.h"

#include <atomic>
#include <utility>

namespace service_streamer::bindings {
namespace {

std::atomic<DeferredDelete*> left{nullptr};  // a stack

int clear_in_main_thread(void*) {
  delete_deferred();
  return 0;
}

}  // namespace

void leave(DeferredDelete* object) noexcept {
  DeferredDelete* first = left.load(std::memory_order_relaxed);
  do {
    object->next_ = first;
  } while (!left.compare_exchange_weak(first, object, std::memory_order_release, std::memory_order_relaxed));
  // One pending call deletes all that are in the stack. If Python has no room for the call, another delete_deferred()
  // does it.
  if (first == nullptr && Py_IsInitialized() != 0) Py_AddPendingCall(clear_in_main_thread, nullptr);
}

void delete_deferred() {
  if (left.load(std::memory_order_relaxed) == nullptr) return;
  DeferredDelete* first = left.exchange(nullptr, std::memory_order_acquire);
  while (first != nullptr) delete std::exchange(first, first->next_);
}

}  // namespace service_streamer::bindings
