#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <vector>

#include "service_streamer/base/clock.h"
#include "service_streamer/base/mutex.h"

namespace service_streamer::ipc {

// Private mappings of a peer's memfds that nobody uses now, with the pages that were read: senders use few memfds again and again,
// and a page fault for every 64 KB costs as much as reading them. Before a mapping is kept, the pages that were written, and so
// are copies, are dropped; so it shows what the memfd holds. Bounded; thread-safe.
class MappingCache {
 public:
  struct Mapping {
    void* data = nullptr;
    std::size_t size = 0;
  };

  MappingCache() = default;
  ~MappingCache();
  MappingCache(const MappingCache&) = delete;
  MappingCache& operator=(const MappingCache&) = delete;

  // A mapping of this file with room for `size`, if there is one.
  Mapping take(const struct stat& file, std::size_t size) EXCLUDES(mutex_);

  // Keeps the mapping, or unmaps it. To be called after take().
  void put(const struct stat& file, Mapping mapping) EXCLUDES(mutex_);

 private:
  struct Entry {
    dev_t device;
    ino_t inode;
    timespec changed;  // numbers of files that are gone are used again, in theory
    Mapping mapping;
    TimePoint kept;

    bool is_of(const struct stat& file) const;
  };

  Mutex mutex_;
  std::vector<Entry> entries_ GUARDED_BY(mutex_);  // the one that was kept for longest first
  std::size_t bytes_ GUARDED_BY(mutex_) = 0;
};

}  // namespace service_streamer::ipc
