#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>

#include "service_streamer/batching/engine.h"

// The names of all statistics, in one place for Python and for JSON. describe(object, field) calls field(name, value)
// for each member. A value is a number, a Duration, a string, a std::map from numbers or strings to numbers, or an
// object that has a describe() too.

namespace service_streamer {

template <typename Visitor>
void describe(const DurationSummary& summary, Visitor& field) {
  field("count", summary.count);
  field("mean", summary.mean);
  field("p50", summary.p50);
  field("p90", summary.p90);
  field("p99", summary.p99);
  field("max", summary.max);
}

template <typename Visitor>
void describe(const Counters& counters, Visitor& field) {
  field("submitted", counters.submitted);
  field("completed", counters.completed);
  field("failed", counters.failed);
  field("cancelled", counters.cancelled);
  field("expired", counters.expired);
  field("rejected", counters.rejected);
  field("dropped", counters.dropped);
  field("isolated", counters.isolated);
  field("batches", counters.batches);
  field("items", counters.items);
  field("peak_requests", counters.peak_requests);
  field("batch_sizes", counters.batch_sizes);
  std::map<std::string_view, std::uint64_t> reasons;
  for (std::size_t i = 0; i < counters.close_reasons.size(); ++i) {
    reasons[to_string(static_cast<CloseReason>(i))] = counters.close_reasons[i];
  }
  field("close_reasons", reasons);
}

template <typename Visitor>
void describe(const EngineOptions& options, Visitor& field) {
  field("batch_size", options.batch_size);
  field("max_latency", options.max_latency);
  field("policy", std::string_view(to_string(options.policy)));
  field("max_queue", options.max_queue);
}

template <typename Visitor>
void describe(const EngineStats& stats, Visitor& field) {
  field("workers", stats.workers);
  field("idle_workers", stats.idle_workers);
  field("queued_items", stats.queued_items);
  field("queued_requests", stats.queued_requests);
  field("waiting_requests", stats.waiting_requests);
  field("running_items", stats.running_items);
  field("running_batches", stats.running_batches);
  describe(stats.counters, field);
  field("queue_time", stats.queue_time);
  field("service_time", stats.service_time);
  field("delivery_time", stats.delivery_time);
}

template <typename Visitor>
void describe(const Engine& engine, Visitor& field) {
  describe(engine.options(), field);
  describe(engine.stats(), field);
}

}  // namespace service_streamer
