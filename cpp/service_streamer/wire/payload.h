#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "service_streamer/base/bytes.h"
#include "service_streamer/shared_memory/shared_memory.h"

namespace service_streamer::ipc {

// The serialized items of a request or of a batch. Each item has bytes, which the core does not interpret, and the
// shared memory blocks of its large buffers, in order.
struct Payload {
  Bytes bytes;                      // the bytes of all items, one after the other
  std::vector<std::uint64_t> ends;  // where each item ends in `bytes`
  struct Block {
    std::uint32_t item;  // the index of its item; ascending
    BlockRef block;
  };
  std::vector<Block> blocks;

  std::size_t items() const { return ends.size(); }
  std::uint64_t begin_of(std::size_t item) const { return item == 0 ? 0 : ends[item - 1]; }
};

// A range of the items of a payload.
struct PayloadRange {
  const Payload* payload = nullptr;
  std::uint32_t begin = 0;
  std::uint32_t count = 0;
};

// The kind of result of one range of a batch.
enum class ResultKind : std::uint8_t {
  kOutputs,    // a list of outputs; with output="batch" the output of the whole range
  kRows,       // one array whose rows are the outputs; the caller splits it
  kError,      // an exception
  kPostponed,  // no result: the range is a whole request that must run alone later. Only in replies of workers.
};

struct Result {
  ResultKind kind = ResultKind::kOutputs;
  Bytes bytes;
  std::vector<BlockRef> blocks;
};

}  // namespace service_streamer::ipc
