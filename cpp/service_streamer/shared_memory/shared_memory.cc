#include "service_streamer/shared_memory/shared_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cerrno>
#include <new>
#include <system_error>
#include <utility>

namespace service_streamer::ipc {
namespace {

// Making a smaller mapping anew costs no more than caching it.
constexpr std::size_t kMinCachedSize = std::size_t{256} << 10;

}  // namespace

SharedBlock::SharedBlock(FileDescriptor fd, std::size_t size, std::weak_ptr<BlockOwner> owner, std::uint64_t handle)
    : fd_(fd.get()),
      own_fd_(std::move(fd)),
      size_(size),
      lender_(std::move(owner)),
      handle_(handle),
      generation_(ForkLock::generation()) {}

SharedBlock::SharedBlock(int borrowed_fd, std::size_t size, std::shared_ptr<BlockOwner> pool, std::uint64_t handle)
    : fd_(borrowed_fd), size_(size), pool_(std::move(pool)), handle_(handle), generation_(ForkLock::generation()) {}

SharedBlock::~SharedBlock() {
  if (generation_ != ForkLock::generation()) return;  // the parent still uses the block and will report its release
  const std::shared_ptr<BlockOwner> owner = pool_ != nullptr ? pool_ : lender_.lock();
  if (owner != nullptr) owner->released(handle_, reusable_.load(std::memory_order_relaxed));
}

bool is_block(const FileDescriptor& fd, std::size_t size) {
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return false;
  struct stat status{};
  if (fstat(fd.get(), &status) != 0 || status.st_size < 0) return false;
  if (static_cast<std::uint64_t>(status.st_size) < size) return false;
  // A file of huge pages can be sealed too, but a page fault raises SIGBUS when no huge page is left.
  struct statfs system{};
  return fstatfs(fd.get(), &system) == 0 && system.f_type == TMPFS_MAGIC;
}

PrivateMapping::PrivateMapping(BlockRef block) : block_(std::move(block)) {
  if (block_->fd() < 0) {
    throw std::system_error(
        EMFILE, std::generic_category(),
        "the descriptor of a shared buffer was lost between processes: too many descriptors were open");
  }
  if (block_->size() == 0) return;
  std::size_t size = block_->size();
  cacheable_ = size >= kMinCachedSize && fstat(block_->fd(), &file_) == 0;
  if (cacheable_) {
    const std::shared_ptr<BlockOwner> lender = block_->lender();
    MappingCache* cache = lender != nullptr ? lender->mappings() : nullptr;
    if (cache != nullptr) mapping_ = cache->take(file_, size);
    if (mapping_.data != nullptr) return;
    // Map the whole file, so that a later, larger block in it fits. A file that is much larger is not mapped whole.
    const auto all = static_cast<std::size_t>(file_.st_size);
    if (all / 2 <= size) size = all;
  }
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, block_->fd(), 0);
  if (data == MAP_FAILED) {
    if (errno == ENOMEM) throw std::bad_alloc();
    throw std::system_error(errno, std::generic_category(), "mapping a shared buffer");
  }
  mapping_ = {.data = data, .size = size};
}

PrivateMapping::~PrivateMapping() {
  if (mapping_.data == nullptr) return;
  if (cacheable_ && !block_->inherited()) {
    const std::shared_ptr<BlockOwner> lender = block_->lender();
    MappingCache* cache = lender != nullptr ? lender->mappings() : nullptr;
    if (cache != nullptr) {
      cache->put(file_, mapping_);
      return;
    }
  }
  munmap(mapping_.data, mapping_.size);
}

}  // namespace service_streamer::ipc
