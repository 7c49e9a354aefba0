#include "service_streamer/shared_memory/mapping_cache.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "service_streamer/base/file_descriptor.h"

namespace service_streamer::ipc {
namespace {

constexpr std::size_t kMaxMappings = 64;
constexpr std::size_t kMaxBytes = std::size_t{256} << 20;
constexpr Duration kMaxAge = std::chrono::seconds(10);
constexpr std::size_t kPage = 4096;

// The descriptor of this process's page map, or -1. A forked child opens its own: the inherited one shows the parent's
// pages.
int pagemap() {
  static FileDescriptor& fd = *new FileDescriptor;
  static std::uint32_t generation = 0;
  const ForkLock lock;
  if (!fd || generation != ForkLock::generation()) {
    fd = FileDescriptor(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
    generation = ForkLock::generation();
  }
  return fd.get();
}

// Drops the private copies among the pages of a mapping. Returns false if the copies cannot be found, or if they are so
// many that unmapping is cheaper.
bool drop_copies(const MappingCache::Mapping& mapping) {
  // The bits of an entry of /proc/self/pagemap. A page that is mapped but does not belong to the file is a copy.
  constexpr std::uint64_t kPresent = std::uint64_t{1} << 63;
  constexpr std::uint64_t kSwapped = std::uint64_t{1} << 62;
  constexpr std::uint64_t kOfFile = std::uint64_t{1} << 61;
  if (sysconf(_SC_PAGESIZE) != static_cast<long>(kPage)) return false;
  const int fd = pagemap();
  if (fd < 0) return false;

  const std::size_t pages = (mapping.size + kPage - 1) / kPage;
  const auto first = reinterpret_cast<std::uintptr_t>(mapping.data) / kPage;
  std::array<std::uint64_t, 512> states;
  std::size_t copies = 0;
  for (std::size_t begin = 0; begin < pages; begin += states.size()) {
    const std::size_t count = std::min(states.size(), pages - begin);
    const auto size = static_cast<ssize_t>(count * sizeof states[0]);
    if (pread(fd, states.data(), static_cast<std::size_t>(size),
              static_cast<off_t>((first + begin) * sizeof states[0])) != size) {
      return false;
    }
    const auto is_copy = [&](std::size_t i) {
      return (states[i] & (kPresent | kSwapped)) != 0 && (states[i] & kOfFile) == 0;
    };
    for (std::size_t i = 0; i < count; ++i) {
      if (!is_copy(i)) continue;
      const std::size_t from = i;
      while (i < count && is_copy(i)) ++i;
      copies += i - from;
      if (copies > pages / 4) return false;
      if (madvise(static_cast<char*>(mapping.data) + (begin + from) * kPage, (i - from) * kPage, MADV_DONTNEED) != 0) {
        return false;
      }
    }
  }
  return true;
}

void unmap(const MappingCache::Mapping& mapping) {
  if (mapping.data != nullptr) munmap(mapping.data, mapping.size);
}

}  // namespace

bool MappingCache::Entry::matches(const struct stat& file) const {
  return inode == file.st_ino && device == file.st_dev && changed.tv_sec == file.st_ctim.tv_sec &&
         changed.tv_nsec == file.st_ctim.tv_nsec;
}

MappingCache::~MappingCache() {
  for (const Entry& entry : entries_) unmap(entry.mapping);
}

MappingCache::Mapping MappingCache::take(const struct stat& file, std::size_t size) {
  Mapping mapping;
  {
    MutexLock lock(mutex_);
    entries_.reserve(kMaxMappings + 1);  // so that put() does not allocate
    const auto place =
        std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.matches(file); });
    if (place == entries_.end()) return {};
    mapping = place->mapping;
    bytes_ -= mapping.size;
    entries_.erase(place);
  }
  if (mapping.size >= size && madvise(mapping.data, mapping.size, MADV_DOFORK) == 0) return mapping;
  unmap(mapping);
  return {};
}

void MappingCache::put(const struct stat& file, Mapping mapping) {
  // A forked child must not inherit cached mappings: they would keep the memfds of the peer alive.
  if (!drop_copies(mapping) || madvise(mapping.data, mapping.size, MADV_DONTFORK) != 0) {
    unmap(mapping);
    return;
  }
  const TimePoint now = Clock::now();
  std::array<Mapping, kMaxMappings + 1> to_unmap;  // after the mutex is released
  std::size_t unmap_count = 0;
  {
    MutexLock lock(mutex_);
    const auto same =
        std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.matches(file); });
    if (same != entries_.end()) {
      to_unmap[unmap_count++] = mapping;
    } else {
      entries_.push_back({file.st_dev, file.st_ino, file.st_ctim, mapping, now});
      bytes_ += mapping.size;
      auto first_kept = entries_.begin();
      for (; first_kept != entries_.end(); ++first_kept) {
        const bool too_many =
            bytes_ > kMaxBytes || entries_.end() - first_kept > static_cast<std::ptrdiff_t>(kMaxMappings);
        if (!too_many && now - first_kept->cached < kMaxAge) break;
        to_unmap[unmap_count++] = first_kept->mapping;
        bytes_ -= first_kept->mapping.size;
      }
      entries_.erase(entries_.begin(), first_kept);
    }
  }
  for (std::size_t i = 0; i < unmap_count; ++i) unmap(to_unmap[i]);
}

}  // namespace service_streamer::ipc
