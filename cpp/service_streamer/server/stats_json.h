#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "service_streamer/batching/engine.h"
#include "service_streamer/server/server.h"

namespace service_streamer::ipc {

// Returns the statistics of an engine and of its worker processes as one line of JSON. It has the fields of
// batching/stats_fields.h, the numbers `worker_restarts` and `places`, and the list `worker_processes`. The keys of
// `batch_sizes` and `buckets` become strings, as JSON requires. A worker's `about` is the text of its kReady message,
// or empty.
std::string stats_json(const Engine& engine, std::uint64_t worker_restarts, std::size_t places,
                       const std::vector<WorkerReport>& workers);

}  // namespace service_streamer::ipc
