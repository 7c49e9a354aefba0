#include "service_streamer/base/file_descriptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "support/threads.h"

namespace service_streamer::support {
namespace {

int open_one() {
  return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

bool is_open(int fd) {
  return fcntl(fd, F_GETFD) >= 0;
}

// Runs the predicate in a forked child and returns its result.
bool in_child(const std::function<bool()>& holds) {
  const pid_t child = fork();
  if (child == 0) _exit(holds() ? 0 : 1);
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(FileDescriptor, IsNoneAtFirst) {
  const FileDescriptor none;
  EXPECT_FALSE(none);
  EXPECT_EQ(none.get(), -1);
  EXPECT_FALSE(FileDescriptor(-1));
}

TEST(FileDescriptor, ClosesWhatItOwnsOnce) {
  const int fd = open_one();
  {
    FileDescriptor owner(fd);
    EXPECT_TRUE(owner);
    EXPECT_EQ(owner.get(), fd);
    owner.reset();
    EXPECT_FALSE(is_open(fd));
    EXPECT_EQ(open_one(), fd);  // the number is in use again
  }
  EXPECT_TRUE(is_open(fd));
  ::close(fd);
}

TEST(FileDescriptor, MovesItsDescriptor) {
  const int first = open_one();
  const int second = open_one();
  FileDescriptor a(first);
  FileDescriptor b(std::move(a));
  EXPECT_FALSE(a);  // NOLINT(bugprone-use-after-move): this is what is tested
  FileDescriptor c(second);
  c = std::move(b);
  EXPECT_EQ(c.get(), first);
  EXPECT_FALSE(is_open(second));
  FileDescriptor& same = c;
  c = std::move(same);
  EXPECT_TRUE(is_open(first));
}

TEST(FileDescriptor, ReleaseLeavesTheDescriptorOpen) {
  const int fd = open_one();
  FileDescriptor owner(fd);
  EXPECT_EQ(owner.release(), fd);
  EXPECT_FALSE(owner);
  EXPECT_TRUE(is_open(fd));
  EXPECT_TRUE(in_child([fd] { return is_open(fd); }));
  ::close(fd);
}

TEST(FileDescriptor, IsClosedInAForkedChildAndOpenInItsParent) {
  FileDescriptor owner(open_one());
  const int fd = owner.get();
  EXPECT_TRUE(in_child([fd] { return !is_open(fd); }));
  EXPECT_TRUE(is_open(fd));
}

TEST(FileDescriptor, OfTheParentDoesNotCloseADescriptorOfTheChild) {
  FileDescriptor owner(open_one());
  EXPECT_TRUE(in_child([&] {
    const FileDescriptor reused(open_one());
    if (reused.get() != owner.get()) return false;
    owner.reset();
    return is_open(reused.get());
  }));
}

TEST(FileDescriptor, OfTheChildIsClosedInTheGrandchild) {
  EXPECT_TRUE(in_child([] {
    const FileDescriptor owner(open_one());
    return in_child([&] { return !is_open(owner.get()); }) && is_open(owner.get());
  }));
}

TEST(FileDescriptor, CountsForks) {
  const std::uint32_t here = (FileDescriptor(open_one()), ForkLock::generation());
  EXPECT_TRUE(in_child([here] { return ForkLock::generation() == here + 1; }));
  EXPECT_EQ(ForkLock::generation(), here);
}

TEST(ForkLock, DelaysAForkUntilADescriptorHasAnOwner) {
  std::atomic<bool> stop{false};
  // No child may find one of these descriptors open.
  constexpr int kFirst = 500;
  std::vector<std::unique_ptr<Thread>> threads;
  for (int number = kFirst; number < kFirst + 3; ++number) {
    threads.push_back(std::make_unique<Thread>([&stop, number] {
      const int source = open_one();
      while (!stop) {
        FileDescriptor owner;
        {
          const ForkLock no_fork;
          owner = FileDescriptor(dup3(source, number, O_CLOEXEC));
        }
        FileDescriptor moved = std::move(owner);
      }
      ::close(source);
    }));
  }
  const std::shared_ptr<void> end(nullptr, [&](void*) { stop = true; });  // also after a failure
  for (int i = 0; i < 200 / kStressShare; ++i) {
    ASSERT_TRUE(in_child([] {
      for (int number = kFirst; number < kFirst + 3; ++number) {
        if (is_open(number)) return false;
      }
      return true;
    }));
  }
}

}  // namespace
}  // namespace service_streamer::support
