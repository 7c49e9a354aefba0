#include "memory.h"

#include <c10/util/Exception.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "streams.h"

namespace simulated_cuda {
namespace {

constexpr int kReleasedByte = 0xA5;  // fills released memory

std::size_t rounded(std::size_t bytes) {
  return std::bit_ceil(std::max<std::size_t>(bytes, 512));
}

// Maps the same memory twice: without access rights for the host, and readable for the threads of the streams.
class Views {
 public:
  Views() {
    const int file = memfd_create("simulated_cuda", MFD_CLOEXEC);
    TORCH_CHECK(file >= 0 && ftruncate(file, kAll) == 0, "not enough memory for the simulated GPUs");
    accessible_ = map(PROT_READ | PROT_WRITE, file);
    protected_ = map(PROT_NONE, file);
    close(file);
  }

  std::byte* protected_at(c10::DeviceIndex device, std::size_t offset) const {
    return protected_ + static_cast<std::size_t>(device) * kDeviceBytes + offset;
  }
  std::byte* accessible(const void* address, c10::DeviceIndex device) const {
    TORCH_CHECK(device_of(address) == device, "memory used on cuda:", device, " belongs to another device");
    return accessible_ + offset_of(address);
  }
  c10::DeviceIndex device_of(const void* address) const {
    TORCH_CHECK(offset_of(address) < kAll, "the address is not in the memory of a simulated GPU");
    return static_cast<c10::DeviceIndex>(offset_of(address) / kDeviceBytes);
  }

 private:
  static constexpr std::size_t kAll = kDevices * kDeviceBytes;

  std::size_t offset_of(const void* address) const {
    return static_cast<std::size_t>(static_cast<const std::byte*>(address) - protected_);
  }

  static std::byte* map(int protection, int file) {
    void* address = mmap(nullptr, kAll, protection, MAP_SHARED, file, 0);
    TORCH_CHECK(address != MAP_FAILED, "not enough memory for the simulated GPUs");
    return static_cast<std::byte*>(address);
  }

  std::byte* protected_ = nullptr;
  std::byte* accessible_ = nullptr;
};

const Views& views() {
  static const auto& only = *new Views;
  return only;
}

struct Block {
  std::byte* data;
  std::size_t bytes;
  c10::Stream stream;                  // that it was allocated for
  std::vector<c10::Stream> used_by{};  // other streams that use it
};

class DeviceMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device device = current_device();
    if (bytes == 0) return {nullptr, device};
    const c10::Stream stream = current_stream(device);
    const std::lock_guard held(mutex_);
    std::vector<std::byte*>& free = free_[{device.index(), stream.id(), rounded(bytes)}];
    std::byte* data = nullptr;
    if (!free.empty()) {
      data = free.back();
      free.pop_back();
    } else {
      std::size_t& used = used_.at(static_cast<std::size_t>(device.index()));
      TORCH_CHECK_WITH(OutOfMemoryError, rounded(bytes) <= kDeviceBytes - used,
                       "CUDA out of memory. Tried to allocate ", bytes);
      data = views().protected_at(device.index(), used);
      used += rounded(bytes);
    }
    taken_.at(static_cast<std::size_t>(device.index())) += rounded(bytes);
    return {data, new Block{data, rounded(bytes), stream}, &release, device};
  }

  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }

  std::size_t used() {
    const std::lock_guard held(mutex_);
    return std::accumulate(used_.begin(), used_.end(), std::size_t{0});
  }

  std::size_t taken(std::size_t device) {
    const std::lock_guard held(mutex_);
    return taken_.at(device);
  }

  static void release(void* given);

 private:
  std::mutex mutex_;
  std::map<std::tuple<c10::DeviceIndex, c10::StreamId, std::size_t>, std::vector<std::byte*>> free_;
  std::array<std::size_t, kDevices> used_{};
  std::array<std::size_t, kDevices> taken_{};
};

DeviceMemory& the_device_memory() {
  static auto& only = *new DeviceMemory;
  return only;
}

void DeviceMemory::release(void* given) {
  const std::unique_ptr<Block> block(static_cast<Block*>(given));
  Stream& own = stream_of(block->stream);
  for (const c10::Stream& user : block->used_by) own.wait_for(stream_of(user).record_point());
  own.enqueue([seen = within_device(block->data, block->stream.device()), bytes = block->bytes] {
    std::memset(seen, kReleasedByte, bytes);
  });
  DeviceMemory& memory = the_device_memory();
  const std::lock_guard held(memory.mutex_);
  memory.taken_.at(static_cast<std::size_t>(block->stream.device_index())) -= block->bytes;
  memory.free_[{block->stream.device_index(), block->stream.id(), block->bytes}].push_back(block->data);
}

class PinnedMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, c10::kCPU};
    const std::lock_guard held(mutex_);
    reuse();
    std::vector<std::byte*>& free = free_[rounded(bytes)];
    std::byte* data = nullptr;
    if (!free.empty()) {
      data = free.back();
      free.pop_back();
    } else {
      data = static_cast<std::byte*>(std::aligned_alloc(64, rounded(bytes)));
      TORCH_CHECK(data != nullptr, "not enough memory to pin");
    }
    blocks_[data] = {.bytes = rounded(bytes), .users = {}};
    return {data, data, &release, c10::kCPU};
  }

  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }

  bool contains(const void* address) {
    const std::lock_guard held(mutex_);
    auto* const at = static_cast<const std::byte*>(address);
    auto found = blocks_.upper_bound(at);
    return found != blocks_.begin() && at < (--found)->first + found->second.bytes;
  }

  void record(const void* context, const void* address, const c10::Stream& stream) {
    const std::lock_guard held(mutex_);
    auto found = blocks_.find(static_cast<const std::byte*>(context));
    if (found == blocks_.end()) found = blocks_.find(static_cast<const std::byte*>(address));
    if (found == blocks_.end()) return;
    std::vector<std::shared_ptr<Point>>& users = found->second.users;
    std::erase_if(users, [](const auto& user) { return user->reached(); });
    users.push_back(stream_of(stream).record_point());
  }

 private:
  struct Pinned {
    std::size_t bytes;
    std::vector<std::shared_ptr<Point>> users;
  };

  static void release(void* data);

  // Makes released blocks available again if all their users are done.
  void reuse() {
    std::erase_if(released_, [&](const auto& each) {
      const auto& [data, block] = each;
      if (!std::ranges::all_of(block.users, [](const auto& user) { return user->reached(); })) return false;
      std::memset(data, kReleasedByte, block.bytes);
      free_[block.bytes].push_back(data);
      return true;
    });
  }

  std::mutex mutex_;
  std::map<const std::byte*, Pinned> blocks_;
  std::vector<std::pair<std::byte*, Pinned>> released_;
  std::map<std::size_t, std::vector<std::byte*>> free_;
};

PinnedMemory& the_pinned_memory() {
  static auto& only = *new PinnedMemory;
  return only;
}

void PinnedMemory::release(void* given) {
  auto* const data = static_cast<std::byte*>(given);
  PinnedMemory& memory = the_pinned_memory();
  const std::lock_guard held(memory.mutex_);
  memory.released_.emplace_back(data, std::move(memory.blocks_.extract(data).mapped()));
  memory.reuse();
}

}  // namespace

c10::Allocator& device_memory() {
  return the_device_memory();
}

std::byte* within_device(const void* address, c10::Device device) {
  return address == nullptr ? nullptr : views().accessible(address, device.index());
}

c10::Device device_of_memory(const void* address) {
  return {c10::kCUDA, address == nullptr ? current_device().index() : views().device_of(address)};
}

void record_stream(const c10::DataPtr& block, const c10::Stream& stream) {
  static auto& mutex = *new std::mutex;
  const std::lock_guard held(mutex);
  if (block.get_deleter() == &DeviceMemory::release)
    static_cast<Block*>(block.get_context())->used_by.push_back(stream);
}

std::size_t reserved_bytes() {
  return the_device_memory().used();
}

std::size_t taken_bytes(std::size_t device) {
  return the_device_memory().taken(device);
}

c10::Allocator& pinned_memory() {
  return the_pinned_memory();
}

bool is_pinned(const void* address) {
  return the_pinned_memory().contains(address);
}

void record_pinned(const void* context, const void* address, const c10::Stream& stream) {
  the_pinned_memory().record(context, address, stream);
}

}  // namespace simulated_cuda
