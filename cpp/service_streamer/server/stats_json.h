#pragma once

#include <string>
#include <vector>

#include "service_streamer/batching/engine.h"
#include "service_streamer/server/server.h"

namespace service_streamer::ipc {

// The statistics of an engine and of its worker processes as one line of JSON: the keys of the dict that bindings/engine_stats.cc
// makes (the numbers of `batch_sizes` become strings, as JSON wants it), and `worker_processes`, a list of {id, pid, state, about,
// batches, items, decode, predict, encode, transport}. `about` is a string: what the worker told of itself, or empty.
std::string stats_json(const Engine& engine, const std::vector<WorkerReport>& workers);

}  // namespace service_streamer::ipc
