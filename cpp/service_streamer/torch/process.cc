#include "service_streamer/torch/process.h"

#include <ATen/Parallel.h>

#include <thread>

namespace service_streamer::torch_backend {
namespace {

std::mutex* lock = new std::mutex;  // leaked where it is renewed

}  // namespace

std::mutex& process_lock() {
  return *lock;
}

void renew_process_lock() {
  lock = new std::mutex;
}

void set_intra_op_threads(int count) {
  const std::lock_guard held(*lock);
  const int usual = at::get_num_threads();
  if (usual == count) return;
  at::set_num_threads(count);
  // The number that a new thread begins with is the last one that any thread has set.
  std::thread([usual] { at::set_num_threads(usual); }).join();
}

}  // namespace service_streamer::torch_backend
