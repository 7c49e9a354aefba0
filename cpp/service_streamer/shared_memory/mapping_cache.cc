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
constexpr Duration kMappingKept = std::chrono::seconds(10);
constexpr std::size_t kPage = 4096;

// Of this process, not of the one that forked it; -1: there is none.
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

// Drops the pages of a private mapping that are copies. False: they cannot be told, or are so many that it is not worth it.
bool drop_copies(const MappingCache::Mapping& mapping) {
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

bool MappingCache::Entry::is_of(const struct stat& file) const {
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
    entries_.reserve(kMaxMappings + 1);  // so that put() needs no memory
    const auto place =
        std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.is_of(file); });
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
  // A forked child does not get what is only kept: it would keep the memfd.
  if (!drop_copies(mapping) || madvise(mapping.data, mapping.size, MADV_DONTFORK) != 0) {
    unmap(mapping);
    return;
  }
  const TimePoint now = Clock::now();
  std::array<Mapping, kMaxMappings + 1> gone;
  std::size_t gone_count = 0;
  {
    MutexLock lock(mutex_);
    const auto same =
        std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.is_of(file); });
    if (same != entries_.end()) {
      gone[gone_count++] = mapping;
    } else {
      entries_.push_back({file.st_dev, file.st_ino, file.st_ctim, mapping, now});
      bytes_ += mapping.size;
      auto stays = entries_.begin();
      for (; stays != entries_.end(); ++stays) {
        const bool too_many = bytes_ > kMaxBytes || entries_.end() - stays > static_cast<std::ptrdiff_t>(kMaxMappings);
        if (!too_many && now - stays->kept < kMappingKept) break;
        gone[gone_count++] = stays->mapping;
        bytes_ -= stays->mapping.size;
      }
      entries_.erase(entries_.begin(), stays);
    }
  }
  for (std::size_t i = 0; i < gone_count; ++i) unmap(gone[i]);
}

}  // namespace service_streamer::ipc
