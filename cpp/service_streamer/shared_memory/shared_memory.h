#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "service_streamer/base/file_descriptor.h"
#include "service_streamer/base/mutex.h"
#include "service_streamer/shared_memory/mapping_cache.h"

namespace service_streamer::ipc {

// The object that is told when the last reference to a block goes: a pool or a connection.
//
// released() may be called by any thread, never with a lock held. If `reusable` is false, the block must not be written
// again: a peer that hung up may still read it.
class BlockOwner {
 public:
  virtual ~BlockOwner() = default;
  virtual void released(std::uint64_t handle, bool reusable) noexcept = 0;

  // The cache for mappings of the owner's blocks; nullptr: mappings are not cached.
  virtual MappingCache* mappings() { return nullptr; }
};

// One large buffer in a memfd. The process that made the block fills it; from then on it is immutable until its last
// reference goes. The destructor tells the owner: the pool that made the block, or the connection that received it,
// which tells the peer. In a forked child the destructor of an inherited block does nothing. Thread-safe.
class SharedBlock {
 public:
  // A block lent by a peer. `fd` is empty if the descriptor was lost because a process had too many open; mapping the
  // block then fails with EMFILE.
  SharedBlock(FileDescriptor fd, std::size_t size, std::weak_ptr<BlockOwner> owner, std::uint64_t handle);
  // A block of a pool. The block keeps the pool alive, and the pool keeps the descriptor open.
  SharedBlock(int borrowed_fd, std::size_t size, std::shared_ptr<BlockOwner> pool, std::uint64_t handle);
  ~SharedBlock();
  SharedBlock(const SharedBlock&) = delete;
  SharedBlock& operator=(const SharedBlock&) = delete;

  int fd() const { return fd_; }  // -1: the descriptor was lost
  std::size_t size() const { return size_; }

  // For a block that was lent to a peer which hung up: its memory will not be reused. Any thread.
  void mark_not_reusable() const { reusable_.store(false, std::memory_order_relaxed); }

  std::shared_ptr<BlockOwner> lender() const { return lender_.lock(); }
  bool inherited() const {
    return generation_ != ForkLock::generation();
  }  // true in a forked child, for a block of the parent

 private:
  const int fd_;
  const FileDescriptor own_fd_;  // empty for a block of a pool
  const std::size_t size_;
  const std::shared_ptr<BlockOwner> pool_;
  const std::weak_ptr<BlockOwner> lender_;
  const std::uint64_t handle_;
  const std::uint32_t generation_;
  mutable std::atomic<bool> reusable_{true};
};

using BlockRef = std::shared_ptr<const SharedBlock>;

// Returns whether a descriptor from a peer is a memfd of at least `size` bytes that is sealed against shrinking.
// Reading any other file could raise SIGBUS.
bool is_block(const FileDescriptor& fd, std::size_t size);

// A private, writable mapping of a block. Writes are not visible to other processes. The mapping keeps the block alive.
class PrivateMapping {
 public:
  // Throws std::bad_alloc if there is no memory for the mapping, and std::system_error (EMFILE) if the block's
  // descriptor was lost.
  explicit PrivateMapping(BlockRef block);
  ~PrivateMapping();
  PrivateMapping(const PrivateMapping&) = delete;
  PrivateMapping& operator=(const PrivateMapping&) = delete;

  void* data() const { return mapping_.data; }
  std::size_t size() const { return block_->size(); }

 private:
  const BlockRef block_;
  MappingCache::Mapping mapping_;
  struct stat file_{};
  bool cacheable_ = false;  // if true, file_ is valid
};

// A pool of memfds for the blocks that this process sends. The memfds are sealed against shrinking and growing, mapped
// writable, reused, and not inherited by forked children (MADV_DONTFORK). The pool is bounded in bytes and in blocks.
// Beyond the bounds each block gets a memfd of its own, which is closed with the last reference to the block.
//
// Thread-safe. The caller copies its data into a block without a lock. Blocks keep their pool alive.
//
// A forked child must not use its parent's pool; it makes its own.
class SharedPool : public BlockOwner, public std::enable_shared_from_this<SharedPool> {
 public:
  static std::shared_ptr<SharedPool> make(std::size_t max_bytes = std::size_t{512} << 20, std::size_t max_blocks = 256);
  ~SharedPool() override;

  // Returns a block of `size` bytes; the caller fills it through `data` before it sends it. Throws std::system_error
  // (no descriptor left, no memory: EMFILE, ENFILE, ENOSPC, ENOMEM); the caller can then send the bytes
  // inline.
  BlockRef allocate(std::size_t size, void*& data) EXCLUDES(mutex_);

  void released(std::uint64_t handle, bool reusable) noexcept override EXCLUDES(mutex_);

  // For tests and statistics.
  std::size_t blocks_in_use() const EXCLUDES(mutex_);
  std::size_t bytes_kept() const EXCLUDES(mutex_);

 private:
  struct Slot;
  SharedPool(std::size_t max_bytes, std::size_t max_blocks);

  Slot* take(std::size_t size, std::size_t capacity, std::vector<std::unique_ptr<Slot>>& evicted, bool& pooled)
      REQUIRES(mutex_);

  // Constant after construction.
  const std::size_t max_bytes_;
  const std::size_t max_blocks_;

  mutable Mutex mutex_;
  std::vector<std::unique_ptr<Slot>> slots_ GUARDED_BY(mutex_);  // the memfds of the pool
  std::size_t bytes_ GUARDED_BY(mutex_) = 0;                     // of slots_, and of slots that are being made
  std::size_t blocks_ GUARDED_BY(mutex_) = 0;
  std::size_t in_use_ GUARDED_BY(mutex_) = 0;  // including blocks beyond the bounds
};

}  // namespace service_streamer::ipc
