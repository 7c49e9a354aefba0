#include <nvtx3/nvToolsExt.h>

#include "service_streamer/base/trace.h"

// Compiled where CMake found NVTX, instead of trace_none.cc.

namespace service_streamer {
namespace {

nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t handle = nvtxDomainCreateA("service_streamer");
  return handle;
}

}  // namespace

TraceRange::TraceRange(const char* name) {
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = name;
  nvtxDomainRangePushEx(domain(), &attributes);
}

TraceRange::~TraceRange() {
  nvtxDomainRangePop(domain());
}

}  // namespace service_streamer
