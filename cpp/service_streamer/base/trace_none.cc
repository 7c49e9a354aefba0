#include "service_streamer/base/trace.h"

// Compiled where CMake found no NVTX, instead of trace_nvtx.cc.

namespace service_streamer {

TraceRange::TraceRange(const char* /*name*/) {}

// Cannot be defaulted in the header: trace_nvtx.cc has a destructor with a body.
TraceRange::~TraceRange() {}  // NOLINT(modernize-use-equals-default)

}  // namespace service_streamer
