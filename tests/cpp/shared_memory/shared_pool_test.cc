// SharedPool of shared_memory.h.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "service_streamer/shared_memory/shared_memory.h"
#include "support/ipc.h"

namespace service_streamer::ipc::support {
namespace {

constexpr std::size_t kMegabyte = std::size_t{1} << 20;

TEST(SharedPool, ReusesABlock) {
  const auto pool = SharedPool::make();
  void* first = nullptr;
  void* second = nullptr;
  const int fd = pool->allocate(100'000, first)->fd();
  EXPECT_EQ(pool->allocate(90'000, second)->fd(), fd);
  EXPECT_EQ(first, second);
}

TEST(SharedPool, HasAsManyBlocksAsAreInUse) {
  const auto pool = SharedPool::make();
  std::vector<BlockRef> blocks;
  for (int i = 0; i < 5; ++i) blocks.push_back(block_of(*pool, std::string(1000, static_cast<char>('a' + i))));
  EXPECT_EQ(pool->blocks_in_use(), 5U);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(text_of(blocks[static_cast<std::size_t>(i)])[999], 'a' + i);
  blocks.clear();
  EXPECT_EQ(pool->blocks_in_use(), 0U);
}

TEST(SharedPool, DoesNotReuseABlockThatIsMuchTooLarge) {
  const auto pool = SharedPool::make();
  void* data = nullptr;
  const int large = pool->allocate(kMegabyte, data)->fd();
  EXPECT_NE(pool->allocate(1000, data)->fd(), large);
}

TEST(SharedPool, DoesNotReuseABlockThatIsNotReusable) {
  const auto pool = SharedPool::make();
  BlockRef block = block_of(*pool, "read by a dead peer");
  void* seen = mmap(nullptr, block->size(), PROT_READ, MAP_PRIVATE, block->fd(), 0);
  ASSERT_NE(seen, MAP_FAILED);
  block->mark_not_reusable();
  block.reset();
  EXPECT_EQ(pool->bytes_kept(), 0U);
  block = block_of(*pool, "something else entirely");
  EXPECT_EQ(std::memcmp(seen, "read by a dead peer", 19), 0);
  munmap(seen, 23);
}

TEST(SharedPool, StaysWithinItsBounds) {
  const auto pool = SharedPool::make(4 * kMegabyte, 3);
  std::vector<BlockRef> blocks;
  void* data = nullptr;
  for (int i = 0; i < 6; ++i) blocks.push_back(pool->allocate(kMegabyte, data));
  blocks.push_back(pool->allocate(100 * kMegabyte, data));
  EXPECT_EQ(pool->blocks_in_use(), 7U);
  const std::size_t before = open_descriptors();
  blocks.clear();
  EXPECT_EQ(pool->bytes_kept(), 3 * kMegabyte);
  EXPECT_EQ(open_descriptors(), before - 4);
}

TEST(SharedPool, MakesRoomForOtherSizes) {
  const auto pool = SharedPool::make(4 * kMegabyte, 256);
  void* data = nullptr;
  for (int i = 0; i < 3; ++i) {
    std::vector<BlockRef> blocks;
    for (int k = 0; k < 4; ++k) blocks.push_back(pool->allocate(kMegabyte, data));
    blocks.clear();
    for (int k = 0; k < 64; ++k) blocks.push_back(pool->allocate(kMegabyte / 16, data));
    EXPECT_EQ(pool->bytes_kept(), 4 * kMegabyte);
  }
}

TEST(SharedPool, LivesAsLongAsItsBlocks) {
  const std::size_t before = open_descriptors();
  auto pool = SharedPool::make();
  BlockRef block = block_of(*pool, "still here");
  pool.reset();
  EXPECT_EQ(text_of(block), "still here");
  block.reset();
  EXPECT_EQ(open_descriptors(), before);
}

TEST(SharedPool, BlocksAreWhatAPeerAccepts) {
  const auto pool = SharedPool::make();
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{4096}, std::size_t{4097}, kMegabyte + 1}) {
    void* data = nullptr;
    const BlockRef block = pool->allocate(size, data);
    EXPECT_EQ(block->size(), size);
    EXPECT_TRUE(is_block(FileDescriptor(fcntl(block->fd(), F_DUPFD_CLOEXEC, 0)), size));
  }
}

TEST(SharedPool, IsNotInheritedByAForkedChild) {
  const auto pool = SharedPool::make();
  void* data = nullptr;
  const BlockRef block = pool->allocate(kMegabyte, data);
  const pid_t child = fork();
  if (child == 0) {
    unsigned char resident = 0;
    const bool mapped = mincore(data, 1, &resident) == 0 || errno != ENOMEM;
    _exit(mapped || fcntl(block->fd(), F_GETFD) >= 0 ? 1 : 0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(SharedPool, ReportsALackOfDescriptorsAndRecovers) {
  const auto pool = SharedPool::make();
  const std::size_t before = open_descriptors();
  void* data = nullptr;
  {
    const DescriptorsLeft none(0);
    EXPECT_THROW(pool->allocate(1000, data), std::system_error);
  }
  EXPECT_EQ(pool->blocks_in_use(), 0U);
  EXPECT_EQ(pool->bytes_kept(), 0U);
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_EQ(text_of(block_of(*pool, "again")), "again");
}

TEST(SharedPool, ReportsALackOfMemory) {
  const auto pool = SharedPool::make();
  const std::size_t before = open_descriptors();
  void* data = nullptr;
  EXPECT_THROW(pool->allocate(SIZE_MAX, data), std::system_error);
  EXPECT_THROW(pool->allocate(std::size_t{1} << 62, data), std::system_error);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small{.rlim_cur = kMegabyte, .rlim_max = limit.rlim_max};
  signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THROW(pool->allocate(2 * kMegabyte, data), std::system_error);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  EXPECT_EQ(pool->blocks_in_use(), 0U);
  EXPECT_EQ(pool->bytes_kept(), 0U);
  EXPECT_EQ(open_descriptors(), before);
}

TEST(SharedPool, ThreadsNeverShareABlock) {
  const auto pool = SharedPool::make(kMegabyte, 8);
  std::vector<std::unique_ptr<Thread>> threads;
  std::atomic<int> wrong{0};
  for (int number = 0; number < 4; ++number) {
    threads.push_back(std::make_unique<Thread>([&, number] {
      for (int round = 0; round < 2000 / kStressShare; ++round) {
        const std::string text(static_cast<std::size_t>(1 + (round * 7919 + number) % 200'000),
                               static_cast<char>('a' + number));
        const BlockRef block = block_of(*pool, text);
        if (round % 16 == 0 && text_of(block) != text) ++wrong;
        if (round % 31 == 0) block->mark_not_reusable();
      }
    }));
  }
  threads.clear();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(pool->blocks_in_use(), 0U);
  EXPECT_LE(pool->bytes_kept(), kMegabyte);
}

}  // namespace
}  // namespace service_streamer::ipc::support
