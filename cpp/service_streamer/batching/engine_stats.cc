#include "service_streamer/batching/engine.h"

namespace service_streamer {

EngineStats Engine::stats(TimePoint now) const {
  using std::chrono::seconds;
  EngineStats stats;
  StatsHistory::Snapshot start_of_10s, start_of_minute;
  {
    MutexLock lock(mutex_);
    start_of_10s = history_.at_start_of(seconds(10), now, counters_, times_);
    start_of_minute = history_.at_start_of(seconds(60), now, counters_, times_);
    stats.workers = options_.workers;
    stats.idle_workers = static_cast<int>(idle_.size());
    stats.queued_items = queue_.items() + queue_.alone_items();
    stats.queued_requests = queue_.requests() + queue_.alone_requests();
    stats.waiting_requests = queue_.waiting();
    stats.tenants = queue_.largest_tenants(EngineStats::kTenants);
    std::size_t others = queue_.items();
    for (const auto& [name, counts] : tenant_counts_) {
      TenantStats& tenant = stats.tenant_stats[name];
      tenant = {.queued_items = queue_.items_of(name), .counts = counts};
      others -= tenant.queued_items;
    }
    if (!tenant_counts_.empty()) stats.tenant_stats["*"].queued_items += others;
    stats.running_items = running_items_;
    stats.running_batches = running_batches_;
    stats.batch_limit = batch_limit_;
    if (slo_) stats.least_service = slo_->least_service();
    stats.counters = counters_;
  }
  stats.engine_id = id_;
  stats.uptime = now - created_;
  stats.queue_time = times_.queue_time.summary();
  stats.service_time = times_.service_time.summary();
  stats.delivery_time = times_.delivery_time.summary();
  stats.last_10s = stats_since(start_of_10s, now, stats.counters, times_);
  stats.last_minute = stats_since(start_of_minute, now, stats.counters, times_);
  return stats;
}

}  // namespace service_streamer
