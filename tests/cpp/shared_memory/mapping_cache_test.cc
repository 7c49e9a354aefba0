#include "service_streamer/shared_memory/mapping_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "support/ipc.h"

namespace service_streamer::ipc::support {
namespace {

constexpr std::size_t kSize = std::size_t{1} << 20;

// A memfd full of one letter, and its fstat.
class File {
 public:
  explicit File(char letter, std::size_t size = kSize) : size_(size), fd_(memfd_create("test", MFD_CLOEXEC)) {
    EXPECT_EQ(ftruncate(fd_.get(), static_cast<off_t>(size)), 0);
    written_ = static_cast<char*>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0));
    fill(letter);
    fstat(fd_.get(), &status_);
  }
  ~File() { munmap(written_, size_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  // Writes through a shared mapping, as a sender does.
  void fill(char letter) { std::memset(written_, letter, size_); }
  const struct stat& status() const { return status_; }

  MappingCache::Mapping map() const {
    return {.data = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd_.get(), 0), .size = size_};
  }

 private:
  const std::size_t size_;
  const FileDescriptor fd_;
  char* written_ = nullptr;
  struct stat status_{};
};

std::string_view text_of(const MappingCache::Mapping& mapping) {
  return {static_cast<const char*>(mapping.data), mapping.size};
}

bool is_mapped(const void* address) {
  unsigned char resident = 0;
  return mincore(const_cast<void*>(address), 1, &resident) == 0;
}

TEST(MappingCache, ReturnsACachedMappingOfTheSameFile) {
  const File file('a');
  const File other('b');
  MappingCache cache;
  EXPECT_EQ(cache.take(file.status(), kSize).data, nullptr);
  const MappingCache::Mapping mapping = file.map();
  cache.put(file.status(), mapping);
  EXPECT_EQ(cache.take(other.status(), kSize).data, nullptr);
  EXPECT_EQ(cache.take(file.status(), kSize - 5).data, mapping.data);
  EXPECT_EQ(cache.take(file.status(), kSize).data, nullptr) << "it is in use";
  munmap(mapping.data, mapping.size);
}

TEST(MappingCache, ACachedMappingShowsTheFileAndNotPrivateWrites) {
  File file('a');
  MappingCache cache;
  EXPECT_EQ(cache.take(file.status(), kSize).data, nullptr);
  MappingCache::Mapping mapping = file.map();
  char letter = 'b';
  for (const std::size_t written : {std::size_t{0}, std::size_t{1}, std::size_t{30}}) {
    auto* data = static_cast<char*>(mapping.data);
    for (std::size_t i = 0; i < written; ++i) data[i * 8 * 4096 + 17] = '!';
    cache.put(file.status(), mapping);
    file.fill(letter);
    const MappingCache::Mapping again = cache.take(file.status(), kSize);
    ASSERT_EQ(again.data, mapping.data) << written << " pages were written";
    EXPECT_TRUE(text_of(again) == std::string(kSize, letter));
    mapping = again;
    ++letter;
  }
  munmap(mapping.data, mapping.size);
}

TEST(MappingCache, DoesNotCacheAMappingThatWasMostlyWritten) {
  const File file('a');
  MappingCache cache;
  EXPECT_EQ(cache.take(file.status(), kSize).data, nullptr);
  const MappingCache::Mapping mapping = file.map();
  std::memset(mapping.data, '!', kSize);
  cache.put(file.status(), mapping);
  EXPECT_EQ(cache.take(file.status(), kSize).data, nullptr);
  EXPECT_FALSE(is_mapped(mapping.data));
}

TEST(MappingCache, DoesNotReturnAMappingThatIsTooSmall) {
  const File file('a');
  MappingCache cache;
  EXPECT_EQ(cache.take(file.status(), kSize).data, nullptr);
  const MappingCache::Mapping mapping = file.map();
  cache.put(file.status(), mapping);
  EXPECT_EQ(cache.take(file.status(), kSize + 1).data, nullptr);
  EXPECT_FALSE(is_mapped(mapping.data));
}

TEST(MappingCache, CachesOneMappingPerFile) {
  const File file('a');
  MappingCache cache;
  EXPECT_EQ(cache.take(file.status(), kSize).data, nullptr);
  const MappingCache::Mapping first = file.map();
  const MappingCache::Mapping second = file.map();
  cache.put(file.status(), first);
  cache.put(file.status(), second);
  EXPECT_FALSE(is_mapped(second.data));
  EXPECT_TRUE(is_mapped(first.data));
}

TEST(MappingCache, CachesTheLatestOfMany) {
  std::vector<std::unique_ptr<File>> files;
  std::vector<MappingCache::Mapping> mappings;
  MappingCache cache;
  for (int i = 0; i < 100; ++i) {
    files.push_back(std::make_unique<File>('a', 4096));
    EXPECT_EQ(cache.take(files.back()->status(), 4096).data, nullptr);
    mappings.push_back(files.back()->map());
    cache.put(files.back()->status(), mappings.back());
  }
  EXPECT_FALSE(is_mapped(mappings[35].data));
  EXPECT_TRUE(is_mapped(mappings[36].data));
  EXPECT_TRUE(is_mapped(mappings[99].data));
}

TEST(MappingCache, CachesABoundedNumberOfBytes) {
  constexpr std::size_t kLarge = std::size_t{100} << 20;
  std::vector<std::unique_ptr<File>> files;
  std::vector<MappingCache::Mapping> mappings;
  MappingCache cache;
  for (int i = 0; i < 3; ++i) {
    const FileDescriptor fd(memfd_create("sparse", MFD_CLOEXEC));
    ASSERT_EQ(ftruncate(fd.get(), kLarge), 0);
    struct stat status{};
    ASSERT_EQ(fstat(fd.get(), &status), 0);
    EXPECT_EQ(cache.take(status, kLarge).data, nullptr);
    mappings.push_back(
        {.data = mmap(nullptr, kLarge, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd.get(), 0), .size = kLarge});
    cache.put(status, mappings.back());
  }
  EXPECT_FALSE(is_mapped(mappings[0].data));
  EXPECT_TRUE(is_mapped(mappings[1].data));
  EXPECT_TRUE(is_mapped(mappings[2].data));
}

TEST(MappingCache, DestructorUnmapsEverything) {
  const File file('a');
  auto cache = std::make_unique<MappingCache>();
  EXPECT_EQ(cache->take(file.status(), kSize).data, nullptr);
  const MappingCache::Mapping mapping = file.map();
  cache->put(file.status(), mapping);
  cache.reset();
  EXPECT_FALSE(is_mapped(mapping.data));
}

TEST(MappingCache, AForkedChildInheritsMappingsInUseAndNoOthers) {
  const File file('a');
  const File other('b');
  MappingCache cache;
  EXPECT_EQ(cache.take(file.status(), kSize).data, nullptr);
  const MappingCache::Mapping mapping = file.map();
  const MappingCache::Mapping kept = other.map();
  cache.put(file.status(), mapping);
  cache.put(other.status(), kept);
  ASSERT_EQ(cache.take(file.status(), kSize).data, mapping.data);
  const pid_t child = fork();
  if (child == 0) _exit(is_mapped(mapping.data) && !is_mapped(kept.data) ? 0 : 1);
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  munmap(mapping.data, mapping.size);
}

TEST(MappingCache, AForkedChildFindsItsOwnCopies) {
  const auto tells = [] {
    const File file('a');
    MappingCache cache;
    if (cache.take(file.status(), kSize).data != nullptr) return false;
    const MappingCache::Mapping mapping = file.map();
    static_cast<char*>(mapping.data)[4096] = '!';
    cache.put(file.status(), mapping);
    const MappingCache::Mapping again = cache.take(file.status(), kSize);
    return again.data == mapping.data && text_of(again) == std::string(kSize, 'a') &&
           munmap(again.data, again.size) == 0;
  };
  EXPECT_TRUE(tells());
  const pid_t child = fork();
  if (child == 0) _exit(tells() ? 0 : 1);
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

// End to end: the sender reuses one block, and the receiver writes to its mapping.
TEST(MappingCache, AReceiverDoesNotSeeWritesOfAnotherReceiver) {
  const Pair pair;
  const auto pool = SharedPool::make();
  const void* last = nullptr;
  int same = 0;
  for (int round = 0; round < 50; ++round) {
    const std::string text(kSize, static_cast<char>('a' + round % 26));
    Payload payload = payload_of({"item"});
    payload.blocks.push_back({.item = 0, .block = block_of(*pool, text)});
    ASSERT_TRUE(pair.here->send(batch_of(1, payload)));
    payload = {};
    InMessage message;
    BatchMessage batch;
    ASSERT_EQ(receive(*pair.there, message), Received::kMessage);
    ASSERT_TRUE(parse(message, batch));
    {
      const PrivateMapping mapping(batch.payload.blocks.at(0).block);
      ASSERT_EQ(mapping.size(), kSize);
      ASSERT_EQ(std::memcmp(mapping.data(), text.data(), kSize), 0);
      same += mapping.data() == last ? 1 : 0;
      last = mapping.data();
      std::memset(static_cast<char*>(mapping.data()) + static_cast<std::size_t>(round) * 4000, '!', 9000);
    }
    batch = {};
    ASSERT_TRUE(pair.there->flush());
    settle(*pair.here);
  }
  EXPECT_EQ(same, 49);
}

TEST(MappingCache, ArraysOutliveTheirConnection) {
  Pair pair;
  const auto pool = SharedPool::make();
  Payload payload = payload_of({"item"});
  payload.blocks.push_back({.item = 0, .block = block_of(*pool, std::string(kSize, 'x'))});
  ASSERT_TRUE(pair.here->send(batch_of(1, payload)));
  std::unique_ptr<PrivateMapping> mapping;
  const std::size_t before = open_descriptors();
  {
    InMessage message;
    BatchMessage batch;
    ASSERT_EQ(receive(*pair.there, message), Received::kMessage);
    ASSERT_TRUE(parse(message, batch));
    mapping = std::make_unique<PrivateMapping>(batch.payload.blocks.at(0).block);
  }
  pair.there.reset();
  EXPECT_EQ(open_descriptors(), before) << "the memfd is here, the socket is not";
  EXPECT_EQ(static_cast<const char*>(mapping->data())[kSize - 1], 'x');
  mapping.reset();
  EXPECT_EQ(open_descriptors(), before - 1);
}

}  // namespace
}  // namespace service_streamer::ipc::support
