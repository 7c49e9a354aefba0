#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string_view>

#include "service_streamer/batching/engine.h"

// The names of all statistics, in one place for Python and for JSON. describe(object, field) calls field(name, value)
// for each member. A value is a number, a Duration, a string, an object that has a describe() too, or a std::map from
// numbers or strings to numbers, or from strings to such objects.

namespace service_streamer {

template <typename Visitor>
void describe(const DurationSummary& summary, Visitor& field) {
  field("total", summary.total);
  field("min", summary.min);
  field("max", summary.max);
  field("buckets", summary.buckets);
}

template <typename Visitor>
void describe(const EventCounts& counters, Visitor& field) {
  field("submitted", counters.submitted);
  field("completed", counters.completed);
  field("failed", counters.failed);
  field("cancelled", counters.cancelled);
  field("expired", counters.expired);
  field("rejected", counters.rejected);
  field("dropped", counters.dropped);
  field("isolated", counters.isolated);
  field("out_of_memory", counters.out_of_memory);
  field("batches", counters.batches);
  field("items", counters.items);
  field("other_keys", counters.other_keys);
  field("weight", counters.weight);
  field("padded_weight", counters.padded_weight);
  std::map<std::string_view, std::uint64_t> reasons;
  for (std::size_t i = 0; i < counters.close_reasons.size(); ++i) {
    reasons[to_string(static_cast<CloseReason>(i))] = counters.close_reasons[i];
  }
  field("close_reasons", reasons);
}

template <typename Visitor>
void describe(const Times<DurationSummary>& times, Visitor& field) {
  field("queue_time", times.queue_time);
  field("service_time", times.service_time);
  field("delivery_time", times.delivery_time);
  field("latency", times.latency);
}

template <typename Visitor>
void describe(const RecentStats& recent, Visitor& field) {
  field("seconds", recent.length);
  describe(recent.counts, field);
  describe(recent.times, field);
}

template <typename Visitor>
void describe(const EngineOptions& options, Visitor& field) {
  field("batch_size", options.batch_size);
  field("max_latency", options.max_latency);
  field("policy", std::string_view(to_string(options.policy)));
  field("max_queue", options.max_queue);
  const bool bounds_weight = options.max_queue_weight != std::numeric_limits<double>::infinity();
  field("max_queue_weight", bounds_weight ? options.max_queue_weight : 0.0);
  field("max_queue_per_tenant", options.max_queue_per_tenant);
  field("slo", options.slo);
  field("buckets", options.buckets);
}

template <typename Visitor>
void describe(const TenantStats& tenant, Visitor& field) {
  field("queued_items", tenant.queued_items);
  field("completed", tenant.counts.completed);
  field("failed", tenant.counts.failed);
  field("cancelled", tenant.counts.cancelled);
  field("expired", tenant.counts.expired);
  field("rejected", tenant.counts.rejected);
  field("dropped", tenant.counts.dropped);
}

template <typename Visitor>
void describe(const EngineStats& stats, Visitor& field) {
  field("engine_id", std::string_view(stats.engine_id));
  field("uptime", stats.uptime);
  field("workers", stats.workers);
  field("idle_workers", stats.idle_workers);
  field("queued_items", stats.queued_items);
  field("queued_weight", stats.queued_weight);
  field("queued_requests", stats.queued_requests);
  field("waiting_requests", stats.waiting_requests);
  field("tenants", stats.tenants);
  field("tenant_stats", stats.tenant_stats);
  field("running_items", stats.running_items);
  field("running_batches", stats.running_batches);
  field("batch_limit", stats.batch_limit);
  field("memory_limits", stats.memory_limits);
  field("least_service", stats.least_service);
  describe(static_cast<const EventCounts&>(stats.counters), field);
  field("peak_requests", stats.counters.peak_requests);
  field("batch_sizes", stats.counters.batch_sizes);
  describe(static_cast<const Times<DurationSummary>&>(stats), field);
  field("last_10s", stats.last_10s);
  field("last_minute", stats.last_minute);
}

template <typename Visitor>
void describe(const Engine& engine, Visitor& field) {
  describe(engine.options(), field);
  describe(engine.stats(), field);
}

}  // namespace service_streamer
