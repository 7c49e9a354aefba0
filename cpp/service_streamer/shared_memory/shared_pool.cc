#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <system_error>
#include <utility>

#include "service_streamer/base/clock.h"
#include "service_streamer/shared_memory/shared_memory.h"

namespace service_streamer::ipc {
namespace {

#ifndef MFD_NOEXEC_SEAL
constexpr unsigned kNoExec = 0x0008U;
#else
constexpr unsigned kNoExec = MFD_NOEXEC_SEAL;
#endif

// allocate() closes memfds that have been free for this long.
constexpr Duration kMaxFreeTime = std::chrono::seconds(10);

[[noreturn]] void fail(int error, const char* what) {
  throw std::system_error(error, std::generic_category(), what);
}

// Rounds up to one of eight sizes per power of two, in whole pages.
std::size_t capacity_for(std::size_t size) {
  constexpr std::size_t kPageSize = 4096;
  if (size > std::size_t{1} << 46) fail(ENOMEM, "shared buffer");
  const std::size_t step = std::max(kPageSize, std::bit_floor(std::max(size, kPageSize)) / 8);
  return std::max(kPageSize, (size + step - 1) / step * step);
}

FileDescriptor open_memfd() {
  constexpr const char* kName = "service_streamer";
  const ForkLock no_fork;
  // The sysctl vm.memfd_noexec can demand the flag MFD_NOEXEC_SEAL. Kernels before 6.3 reject it.
  int fd = memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING | kNoExec);
  if (fd < 0 && errno == EINVAL) fd = memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) fail(errno, "shared buffer");
  return FileDescriptor(fd);
}

}  // namespace

struct SharedPool::Slot {
  Slot(std::size_t bytes, bool recycled) : fd(open_memfd()), capacity(bytes), pooled(recycled) {
    allocate_pages();
    if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) fail(errno, "shared buffer");
    data = mmap(nullptr, capacity, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd.get(), 0);
    if (data == MAP_FAILED) fail(errno, "shared buffer");
    madvise(data, capacity, MADV_DONTFORK);
  }

  ~Slot() {
    if (generation != ForkLock::generation()) return;  // a forked child does not have the mapping
    fd.reset();  // before munmap(): the last of the two frees the pages, and reset() holds the fork lock
    munmap(data, capacity);
  }

  // Allocates the pages now, where a lack of memory is an error; later it would be a SIGBUS. Allocates in steps,
  // because a signal undoes a whole call: under the timer signals of a profiler one large call would never finish.
  void allocate_pages() const {
    constexpr std::size_t kStep = std::size_t{256} << 10;
    for (std::size_t begin = 0; begin < capacity; begin += kStep) {
      const std::size_t size = std::min(kStep, capacity - begin);
      while (fallocate(fd.get(), 0, static_cast<off_t>(begin), static_cast<off_t>(size)) != 0) {
        if (errno != EINTR) fail(errno, "shared buffer");
      }
    }
  }

  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  FileDescriptor fd;
  const std::size_t capacity;
  const bool pooled;
  const std::uint32_t generation = ForkLock::generation();
  void* data = nullptr;
  bool free = false;
  TimePoint freed;
};

SharedPool::SharedPool(std::size_t max_bytes, std::size_t max_blocks) : max_bytes_(max_bytes), max_blocks_(max_blocks) {
  slots_.reserve(max_blocks);
}

SharedPool::~SharedPool() = default;

std::shared_ptr<SharedPool> SharedPool::make(std::size_t max_bytes, std::size_t max_blocks) {
  return std::shared_ptr<SharedPool>(new SharedPool(max_bytes, max_blocks));
}

// Returns the smallest free slot that is large enough but not much too large. If there is none, evicts the slots that
// have been free for longest until a new slot fits the bounds. `pooled` is false if it still does not fit.
SharedPool::Slot* SharedPool::take(std::size_t size, std::size_t capacity, std::vector<std::unique_ptr<Slot>>& evicted,
                                   bool& pooled) {
  Slot* best = nullptr;
  for (const auto& slot : slots_) {
    if (!slot->free || slot->capacity < size || slot->capacity / 2 > capacity) continue;
    if (best == nullptr || slot->capacity < best->capacity) best = slot.get();
  }
  pooled = true;
  const TimePoint now = Clock::now();
  for (;;) {
    const bool too_much = best == nullptr && (blocks_ >= max_blocks_ || bytes_ + capacity > max_bytes_);
    auto oldest = slots_.end();
    for (auto slot = slots_.begin(); slot != slots_.end(); ++slot) {
      if (!(*slot)->free || slot->get() == best) continue;
      if (oldest == slots_.end() || (*slot)->freed < (*oldest)->freed) oldest = slot;
    }
    if (oldest == slots_.end() || (!too_much && now - (*oldest)->freed < kMaxFreeTime)) {
      pooled = !too_much;
      break;
    }
    bytes_ -= (*oldest)->capacity;
    --blocks_;
    evicted.push_back(std::move(*oldest));
    *oldest = std::move(slots_.back());
    slots_.pop_back();
  }
  if (best != nullptr) {
    best->free = false;
  } else if (pooled) {
    bytes_ += capacity;
    ++blocks_;
  }
  ++in_use_;
  return best;
}

BlockRef SharedPool::allocate(std::size_t size, void*& data) {
  const std::size_t capacity = capacity_for(size);
  std::vector<std::unique_ptr<Slot>> evicted;
  bool pooled = false;
  Slot* slot = nullptr;
  {
    MutexLock lock(mutex_);
    slot = take(size, capacity, evicted, pooled);
  }
  evicted.clear();  // without the mutex: unmapping takes long
  if (slot == nullptr) {
    try {
      auto made = std::make_unique<Slot>(capacity, pooled);
      if (pooled) {
        slot = made.get();
        MutexLock lock(mutex_);
        slots_.push_back(std::move(made));
      } else {
        slot = made.release();  // released() deletes it
      }
    } catch (...) {
      MutexLock lock(mutex_);
      --in_use_;
      if (pooled) {
        bytes_ -= capacity;
        --blocks_;
      }
      throw;
    }
  }
  data = slot->data;
  try {
    return std::make_shared<const SharedBlock>(slot->fd.get(), size, shared_from_this(),
                                               static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(slot)));
  } catch (...) {
    released(static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(slot)), true);
    throw;
  }
}

void SharedPool::released(std::uint64_t handle, bool reusable) noexcept {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a handle of allocate()
  auto* slot = reinterpret_cast<Slot*>(static_cast<std::uintptr_t>(handle));
  std::unique_ptr<Slot> to_destroy;  // declared before the lock, so destroyed after the mutex is released
  MutexLock lock(mutex_);
  --in_use_;
  if (slot->pooled && reusable) {
    slot->free = true;
    slot->freed = Clock::now();
    return;
  }
  if (!slot->pooled) {
    to_destroy.reset(slot);
    return;
  }
  const auto place =
      std::find_if(slots_.begin(), slots_.end(), [slot](const auto& other) { return other.get() == slot; });
  bytes_ -= slot->capacity;
  --blocks_;
  to_destroy = std::move(*place);
  *place = std::move(slots_.back());
  slots_.pop_back();
}

std::size_t SharedPool::blocks_in_use() const {
  MutexLock lock(mutex_);
  return in_use_;
}

std::size_t SharedPool::bytes_kept() const {
  MutexLock lock(mutex_);
  return bytes_;
}

}  // namespace service_streamer::ipc
