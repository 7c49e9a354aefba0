#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <vector>

#include "service_streamer/base/clock.h"
#include "service_streamer/base/mutex.h"

namespace service_streamer::ipc {

// A cache of private mappings of a peer's memfds. A sender reuses a few memfds, so a later block in the same memfd
// finds its pages mapped already and raises no page faults. Before a mapping is cached, the pages that this process
// wrote are dropped; the mapping then shows the current contents of the memfd.
//
// Thread-safe; no call blocks for long. The cache is bounded in mappings, bytes and age. The destructor unmaps
// everything.
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

  // Returns a cached mapping of this file of at least `size` bytes, or an empty mapping. The caller owns it.
  Mapping take(const struct stat& file, std::size_t size) EXCLUDES(mutex_);

  // Takes over a mapping that is no longer used, and caches or unmaps it. take() must have been called before.
  void put(const struct stat& file, Mapping mapping) EXCLUDES(mutex_);

 private:
  struct Entry {
    dev_t device;
    ino_t inode;
    timespec changed;  // inode numbers can be reused, so the change time is compared too
    Mapping mapping;
    TimePoint cached;  // when put() added it

    bool matches(const struct stat& file) const;
  };

  Mutex mutex_;
  std::vector<Entry> entries_ GUARDED_BY(mutex_);  // oldest first
  std::size_t bytes_ GUARDED_BY(mutex_) = 0;
};

}  // namespace service_streamer::ipc
