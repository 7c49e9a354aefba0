// `make fuzz`: libFuzzer's input as the bytes of a peer and of a broker.

#include <cstddef>
#include <cstdint>

#include "fuzz/broker_body_input.h"
#include "fuzz/hostile_stream.h"

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  service_streamer::ipc::fuzz::play({data, size});
  service_streamer::ipc::fuzz::read_as_bodies({data, size});
  return 0;
}
