#include "bindings/engine/engine_stats.h"

#include <pybind11/pybind11.h>

namespace service_streamer::bindings {
namespace {

namespace py = pybind11;
using namespace py::literals;

double seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

py::dict summary_dict(const DurationSummary& summary) {
  return py::dict("count"_a = summary.count, "mean"_a = seconds(summary.mean), "p50"_a = seconds(summary.p50),
                  "p90"_a = seconds(summary.p90), "p99"_a = seconds(summary.p99), "max"_a = seconds(summary.max));
}

py::dict make_dict(const Engine& engine) {
  const EngineStats stats = engine.stats();
  const EngineOptions options = engine.options();
  const Counters& counters = stats.counters;

  py::dict sizes;
  for (const auto& [size, count] : counters.batch_sizes) sizes[py::int_(size)] = count;
  py::dict reasons;
  for (std::size_t i = 0; i < counters.close_reasons.size(); ++i) {
    reasons[to_string(static_cast<CloseReason>(i))] = counters.close_reasons[i];
  }
  return py::dict("batch_size"_a = options.batch_size, "max_latency"_a = seconds(options.max_latency),
                  "policy"_a = to_string(options.policy), "max_queue"_a = options.max_queue,
                  "workers"_a = stats.workers, "idle_workers"_a = stats.idle_workers,
                  "queued_items"_a = stats.queued_items, "queued_requests"_a = stats.queued_requests,
                  "waiting_requests"_a = stats.waiting_requests, "running_items"_a = stats.running_items,
                  "running_batches"_a = stats.running_batches, "submitted"_a = counters.submitted,
                  "completed"_a = counters.completed, "failed"_a = counters.failed, "cancelled"_a = counters.cancelled,
                  "expired"_a = counters.expired, "rejected"_a = counters.rejected, "dropped"_a = counters.dropped,
                  "isolated"_a = counters.isolated, "batches"_a = counters.batches, "items"_a = counters.items,
                  "peak_requests"_a = counters.peak_requests, "batch_sizes"_a = sizes, "close_reasons"_a = reasons,
                  "queue_time"_a = summary_dict(stats.queue_time), "service_time"_a = summary_dict(stats.service_time),
                  "delivery_time"_a = summary_dict(stats.delivery_time));
}

}  // namespace

PyObject* stats_dict(const Engine& engine) {
  try {
    return make_dict(engine).release().ptr();
  } catch (py::error_already_set& error) {
    error.restore();
    return nullptr;
  }
}

}  // namespace service_streamer::bindings
