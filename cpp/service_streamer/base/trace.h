#pragma once

namespace service_streamer {

// A stretch of the calling thread's time, under a name, for NVIDIA's tools (nsys, NVTX). Ends with the object; they nest. Costs some
// nanoseconds while no tool looks, and nothing where the library was built without NVTX.
class TraceRange {
 public:
  explicit TraceRange(const char* name);
  ~TraceRange();
  TraceRange(const TraceRange&) = delete;
  TraceRange& operator=(const TraceRange&) = delete;
};

}  // namespace service_streamer
