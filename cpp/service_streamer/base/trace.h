#pragma once

namespace service_streamer {

// A named range of the calling thread's time, shown by NVIDIA's profilers (NVTX). The range ends with the object.
// Ranges nest. `name` must live as long as the object. Without NVTX at build time a TraceRange does nothing.
class TraceRange {
 public:
  explicit TraceRange(const char* name);
  ~TraceRange();
  TraceRange(const TraceRange&) = delete;
  TraceRange& operator=(const TraceRange&) = delete;
};

}  // namespace service_streamer
