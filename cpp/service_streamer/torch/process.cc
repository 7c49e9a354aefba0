#include "service_streamer/torch/process.h"

#include <thread>

#include "service_streamer/torch/shims.h"

namespace service_streamer::torch_backend {
namespace {

std::mutex* lock = new std::mutex;  // a replaced lock is leaked: a thread of the parent may have held it

}  // namespace

std::mutex& process_lock() {
  return *lock;
}

void renew_process_lock() {
  lock = new std::mutex;
}

void set_intra_op_threads(int count) {
  const std::lock_guard held(*lock);
  const int usual = shims().get_num_threads();
  if (usual == count) return;
  shims().set_num_threads(count);
  // A new thread starts with the number that any thread has set last. A helper thread restores the previous number.
  std::thread([usual] { shims().set_num_threads(usual); }).join();
}

}  // namespace service_streamer::torch_backend
