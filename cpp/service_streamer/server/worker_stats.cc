#include "service_streamer/server/worker_stats.h"

#include <utility>

namespace service_streamer::ipc {

void WorkerStats::became_ready(std::string about) {
  MutexLock lock(mutex_);
  about_ = std::move(about);
  state_.store(WorkerReport::State::kReady, std::memory_order_relaxed);
}

void WorkerStats::answered(std::size_t items, const ReplyMessage& reply, Duration round_trip) {
  batches_.fetch_add(1, std::memory_order_relaxed);
  items_.fetch_add(items, std::memory_order_relaxed);
  decode_.add(reply.decode);
  predict_.add(reply.predict);
  encode_.add(reply.encode);
  transport_.add(round_trip - reply.decode - reply.predict - reply.encode);
}

WorkerReport WorkerStats::report() const {
  WorkerReport report{.id = id_,
                      .pid = pid_,
                      .state = state_.load(std::memory_order_relaxed),
                      .about = {},
                      .batches = batches_.load(std::memory_order_relaxed),
                      .items = items_.load(std::memory_order_relaxed),
                      .decode = decode_.summary(),
                      .predict = predict_.summary(),
                      .encode = encode_.summary(),
                      .transport = transport_.summary()};
  MutexLock lock(mutex_);
  report.about = about_;
  return report;
}

}  // namespace service_streamer::ipc
