#pragma once

#include <string>
#include <vector>

#include "service_streamer/batching/engine.h"
#include "service_streamer/server/server.h"

namespace service_streamer::ipc {

// The statistics of an engine and of its worker processes as one line of JSON: what batching/stats_fields.h lists (the
// numbers of `batch_sizes` become strings, as JSON wants it), and `worker_processes`, a list. A worker's `about` is the
// text that the worker told about itself, or empty.
std::string stats_json(const Engine& engine, const std::vector<WorkerReport>& workers);

}  // namespace service_streamer::ipc
