#include "service_streamer/shared_memory/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <system_error>

#include "support/ipc.h"

namespace service_streamer::ipc::support {
namespace {

// Records the releases.
struct Lender : BlockOwner {
  void released(std::uint64_t handle, bool reusable) noexcept override { back[handle] = reusable; }
  std::map<std::uint64_t, bool> back;
};

FileDescriptor memfd(std::size_t size, int seals) {
  FileDescriptor fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(size)), 0);
  EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

TEST(SharedBlock, TellsItsOwnerWhenTheLastReferenceGoes) {
  const auto lender = std::make_shared<Lender>();
  BlockRef block = std::make_shared<const SharedBlock>(memfd(10, F_SEAL_SHRINK), 10, lender, 7);
  BlockRef another = block;
  block.reset();
  EXPECT_TRUE(lender->back.empty());
  another.reset();
  EXPECT_EQ(lender->back, (std::map<std::uint64_t, bool>{{7, true}}));
}

TEST(SharedBlock, ReportsThatItIsNotReusable) {
  const auto lender = std::make_shared<Lender>();
  std::make_shared<const SharedBlock>(memfd(10, F_SEAL_SHRINK), 10, lender, 7)->mark_not_reusable();
  EXPECT_EQ(lender->back, (std::map<std::uint64_t, bool>{{7, false}}));
}

TEST(SharedBlock, MayOutliveItsOwner) {
  auto lender = std::make_shared<Lender>();
  BlockRef block = std::make_shared<const SharedBlock>(memfd(10, F_SEAL_SHRINK), 10, lender, 7);
  lender.reset();
  EXPECT_EQ(text_of(block), std::string(10, '\0'));
}

TEST(SharedBlock, DoesNotTellItsOwnerInAForkedChild) {
  const auto lender = std::make_shared<Lender>();
  BlockRef block = std::make_shared<const SharedBlock>(memfd(10, F_SEAL_SHRINK), 10, lender, 7);
  const pid_t child = fork();
  if (child == 0) {
    block.reset();
    _exit(lender->back.empty() ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(IsBlock, AcceptsSealedMemfdsThatAreLargeEnough) {
  EXPECT_TRUE(is_block(memfd(10, F_SEAL_SHRINK), 10));
  EXPECT_TRUE(is_block(memfd(10, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 3));
  EXPECT_TRUE(is_block(memfd(0, F_SEAL_SHRINK), 0));
}

TEST(IsBlock, RejectsFilesThatCanShrink) {
  EXPECT_FALSE(is_block(memfd(9, F_SEAL_SHRINK), 10));
  EXPECT_FALSE(is_block(memfd(10, 0), 10));
  EXPECT_FALSE(is_block(memfd(10, F_SEAL_GROW | F_SEAL_SEAL), 10));
  EXPECT_FALSE(is_block(memfd(10, F_SEAL_SHRINK), SIZE_MAX));
}

TEST(IsBlock, RejectsOtherFiles) {
  EXPECT_FALSE(is_block(FileDescriptor(open("/proc/self/exe", O_RDONLY | O_CLOEXEC)), 10));
  EXPECT_FALSE(is_block(FileDescriptor(open("/dev/zero", O_RDWR | O_CLOEXEC)), 10));
  EXPECT_FALSE(is_block(std::move(socket_pair().first), 0));
  EXPECT_FALSE(is_block(FileDescriptor(), 0));
  std::string name = "/dev/shm/service_streamer_test_XXXXXX";
  const FileDescriptor file(mkostemp(name.data(), O_CLOEXEC));
  if (!file) GTEST_SKIP() << "no /dev/shm";
  unlink(name.c_str());
  ASSERT_EQ(ftruncate(file.get(), 10), 0);
  EXPECT_FALSE(is_block(file, 10));
}

TEST(PrivateMapping, IsWritableAndPrivate) {
  const auto pool = SharedPool::make();
  const BlockRef block = block_of(*pool, "immutable");
  const PrivateMapping mapping(block);
  std::memcpy(mapping.data(), "scribbled", 9);
  EXPECT_EQ(text_of(block), "immutable");
}

TEST(PrivateMapping, KeepsItsBlockAlive) {
  const auto pool = SharedPool::make();
  BlockRef block = block_of(*pool, "kept");
  auto mapping = std::make_unique<PrivateMapping>(block);
  block.reset();
  EXPECT_EQ(pool->blocks_in_use(), 1U);
  EXPECT_EQ(std::memcmp(mapping->data(), "kept", 4), 0);
  mapping.reset();
  EXPECT_EQ(pool->blocks_in_use(), 0U);
}

TEST(PrivateMapping, IsInheritedByAForkedChild) {
  const auto pool = SharedPool::make();
  auto mapping = std::make_unique<PrivateMapping>(block_of(*pool, "inherited"));
  const pid_t child = fork();
  if (child == 0) {
    const bool same = std::memcmp(mapping->data(), "inherited", 9) == 0;
    mapping.reset();
    _exit(same ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(pool->blocks_in_use(), 1U);
}

TEST(PrivateMapping, ReportsALostDescriptor) {
  const BlockRef lost = std::make_shared<const SharedBlock>(FileDescriptor(), 10, std::weak_ptr<BlockOwner>(), 0);
  try {
    const PrivateMapping mapping(lost);
    FAIL();
  } catch (const std::system_error& error) {
    EXPECT_EQ(error.code().value(), EMFILE);
  }
}

TEST(PrivateMapping, OfAnEmptyBlockIsEmpty) {
  const auto pool = SharedPool::make();
  EXPECT_EQ(PrivateMapping(block_of(*pool, "")).size(), 0U);
}

TEST(PrivateMapping, ReportsALackOfMemory) {
  constexpr std::size_t kTooMuch = std::size_t{1} << 46;
  const BlockRef huge =
      std::make_shared<const SharedBlock>(memfd(kTooMuch, F_SEAL_SHRINK), kTooMuch, std::weak_ptr<BlockOwner>(), 0);
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own mappings are as large";
  EXPECT_THROW(PrivateMapping{huge}, std::bad_alloc);
}

}  // namespace
}  // namespace service_streamer::ipc::support
