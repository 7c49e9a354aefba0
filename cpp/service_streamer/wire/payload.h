#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "service_streamer/base/bytes.h"
#include "service_streamer/shared_memory/shared_memory.h"

namespace service_streamer::ipc {

// The items of a request (or of a batch) on their way: for each some bytes, which only the two ends understand, and the large
// buffers that belong to it, in order.
struct Payload {
  Bytes bytes;                      // of all items, one after the other
  std::vector<std::uint64_t> ends;  // of each item in `bytes`
  struct Block {
    std::uint32_t item;  // ascending
    BlockRef block;
  };
  std::vector<Block> blocks;

  std::size_t items() const { return ends.size(); }
  std::uint64_t begin_of(std::size_t item) const { return item == 0 ? 0 : ends[item - 1]; }
};

// A range of a payload.
struct PayloadRange {
  const Payload* payload = nullptr;
  std::uint32_t begin = 0;
  std::uint32_t count = 0;
};

// What a worker made of one part of a batch.
enum class ResultKind : std::uint8_t {
  kOutputs,    // a list of outputs, or with output="batch" the slice itself
  kRows,       // an array whose rows are the outputs: the caller cuts it
  kError,      // an exception
  kPostponed,  // nothing: a whole request that is to run alone later. Only in replies of workers.
};

struct Result {
  ResultKind kind = ResultKind::kOutputs;
  Bytes bytes;
  std::vector<BlockRef> blocks;
};

}  // namespace service_streamer::ipc
