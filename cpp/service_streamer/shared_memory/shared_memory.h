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

// Who lent a block and wants to hear when it is free again. Thread-safe; called from any thread, never with a lock held.
// Not `reusable`: somebody whom nobody can ask any more (a peer that hung up) may still read it, so it must never be written
// again.
class BlockOwner {
 public:
  virtual ~BlockOwner() = default;
  virtual void released(std::uint64_t handle, bool reusable) noexcept = 0;

  // Where mappings of its blocks are kept to be used again.
  virtual MappingCache* mappings() { return nullptr; }
};

// One large buffer in a memfd, filled by its maker and immutable while anybody refers to it. The last reference in this
// process tells its owner: the pool that made it, or the connection that it came from, which tells the peer.
class SharedBlock {
 public:
  // One that a peer lent. No descriptor: it was lost on the way, because a process had too many open; whoever gets the block
  // in the end fails to map it.
  SharedBlock(FileDescriptor fd, std::size_t size, std::weak_ptr<BlockOwner> owner, std::uint64_t handle);
  // One of a pool, which lives as long.
  SharedBlock(int borrowed_fd, std::size_t size, std::shared_ptr<BlockOwner> pool, std::uint64_t handle);
  ~SharedBlock();
  SharedBlock(const SharedBlock&) = delete;
  SharedBlock& operator=(const SharedBlock&) = delete;

  int fd() const { return fd_; }  // -1: lost
  std::size_t size() const { return size_; }

  // A peer that it was lent to hung up. Any thread.
  void forfeit() const { reusable_.store(false, std::memory_order_relaxed); }

  std::shared_ptr<BlockOwner> lender() const { return lender_.lock(); }
  bool inherited() const { return generation_ != ForkLock::generation(); }  // by this forked child

 private:
  const int fd_;
  const FileDescriptor own_fd_;  // none for a block of a pool, whose slot keeps it
  const std::size_t size_;
  const std::shared_ptr<BlockOwner> pool_;
  const std::weak_ptr<BlockOwner> lender_;
  const std::uint64_t handle_;
  const std::uint32_t generation_;
  mutable std::atomic<bool> reusable_{true};
};

using BlockRef = std::shared_ptr<const SharedBlock>;

// Whether a descriptor that came from a peer is what it must be: plain shared memory of at least that size, which can never
// shrink (touching it must not raise SIGBUS).
bool is_block(const FileDescriptor& fd, std::size_t size);

// A private, writable mapping of a block: what is written there nobody else sees, and it stays valid as long as it is kept.
class PrivateMapping {
 public:
  // Throws std::bad_alloc when there is no memory to map it, std::system_error (EMFILE) when its descriptor was lost on
  // the way.
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
  bool may_be_kept_ = false;  // and file_ is known
};

// Recycled memfds of this process, sealed against shrinking and growing, mapped writable and not inherited by forked
// children (MADV_DONTFORK). Bounded in bytes and in number: beyond that each block is a memfd of its own, which goes with its
// last reference. Thread-safe, never blocks for long; the copy into the block is the caller's, without a lock.
//
// A forked child must not use its parent's pool; it makes its own.
class SharedPool : public BlockOwner, public std::enable_shared_from_this<SharedPool> {
 public:
  static std::shared_ptr<SharedPool> make(std::size_t max_bytes = std::size_t{512} << 20, std::size_t max_blocks = 256);
  ~SharedPool() override;

  // Room for `size` bytes, to be filled through `data` before the block is sent. Throws std::system_error (no descriptor left, no
  // memory: EMFILE, ENFILE, ENOSPC, ENOMEM); then nothing is leaked, and the bytes can still travel inline.
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
  std::vector<std::unique_ptr<Slot>> slots_ GUARDED_BY(mutex_);  // the recycled ones
  std::size_t bytes_ GUARDED_BY(mutex_) = 0;                     // of them, and of those that are being made
  std::size_t blocks_ GUARDED_BY(mutex_) = 0;
  std::size_t in_use_ GUARDED_BY(mutex_) = 0;  // also of those beyond the bounds
};

}  // namespace service_streamer::ipc
