#include "service_streamer/waiting/mailbox.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "support/mailbox.h"
#include "support/threads.h"

namespace service_streamer::support {
namespace {

bool readable(const Mailbox& mailbox, Duration patience = Duration::zero()) {
  pollfd descriptor{.fd = mailbox.fd(), .events = POLLIN, .revents = 0};
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(patience).count();
  return ::poll(&descriptor, 1, static_cast<int>(milliseconds)) == 1;
}

void post(const std::shared_ptr<Mailbox>& mailbox, void* value) {
  Mailbox::post(std::make_unique<Mailbox::Message>(Mailbox::Message{.to = mailbox, .value = value}));
}

// The number of writes to the descriptor since it was cleared.
std::uint64_t take_writes(const Mailbox& mailbox) {
  std::uint64_t count = 0;
  return read(mailbox.fd(), &count, sizeof count) == sizeof count ? count : 0;
}

TEST(Mailbox, IsUnreadableAndEmptyAtFirst) {
  const auto mailbox = std::make_shared<Mailbox>();
  EXPECT_FALSE(readable(*mailbox));
  EXPECT_TRUE(mailbox->drain().empty());
}

TEST(Mailbox, DeliversMessagesInOrder) {
  const auto mailbox = std::make_shared<Mailbox>();
  std::array<int, 3> messages{};
  for (int& message : messages) post(mailbox, &message);
  EXPECT_EQ(drained(*mailbox), (std::vector<void*>{&messages[0], &messages[1], &messages[2]}));
}

TEST(Mailbox, WritesTheDescriptorOnceBeforeEachDrain) {
  const auto mailbox = std::make_shared<Mailbox>();
  int message = 0;
  for (int i = 0; i < 100; ++i) post(mailbox, &message);
  EXPECT_EQ(take_writes(*mailbox), 1U);
  EXPECT_EQ(mailbox->drain().size(), 100U);
}

TEST(Mailbox, DrainClearsTheDescriptorAndTheNextPostSetsItAgain) {
  const auto mailbox = std::make_shared<Mailbox>();
  int message = 0;
  for (int round = 0; round < 3; ++round) {
    post(mailbox, &message);
    EXPECT_TRUE(readable(*mailbox));
    EXPECT_EQ(mailbox->drain().size(), 1U);
    EXPECT_FALSE(readable(*mailbox));
    EXPECT_TRUE(mailbox->drain().empty());
  }
}

TEST(Mailbox, TheDescriptorNeverBlocksAndIsNotInherited) {
  const auto mailbox = std::make_shared<Mailbox>();
  EXPECT_NE(fcntl(mailbox->fd(), F_GETFL) & O_NONBLOCK, 0);
  EXPECT_NE(fcntl(mailbox->fd(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(Mailbox, ClosesItsDescriptorWhenItIsDestroyed) {
  auto mailbox = std::make_unique<Mailbox>();
  const int fd = mailbox->fd();
  EXPECT_GE(fcntl(fd, F_GETFD), 0);
  mailbox.reset();
  EXPECT_EQ(fcntl(fd, F_GETFD), -1);
  EXPECT_EQ(errno, EBADF);
}

TEST(Mailbox, CanBeClosedWhileMessagesAreOnTheirWay) {
  const auto mailbox = std::make_shared<Mailbox>();
  const int fd = mailbox->fd();
  mailbox->close();
  mailbox->close();
  EXPECT_EQ(fcntl(fd, F_GETFD), -1);
  int message = 0;
  post(mailbox, &message);
  EXPECT_EQ(drained(*mailbox), std::vector<void*>{&message});
}

TEST(Mailbox, IsClosedOnlyAfterTheLastWrite) {
  int message = 0;
  for (int round = 0; round < 2000 / kStressShare; ++round) {
    const auto mailbox = std::make_shared<Mailbox>();
    const int fd = mailbox->fd();
    {
      Thread poster([&] { post(mailbox, &message); });
      mailbox->close();
    }
    ASSERT_EQ(fcntl(fd, F_GETFD), -1);
  }
}

TEST(Mailbox, AMessageKeepsItUntilItIsPosted) {
  auto mailbox = std::make_shared<Mailbox>();
  const std::weak_ptr<Mailbox> watched = mailbox;
  int value = 0;
  auto message = std::make_unique<Mailbox::Message>(Mailbox::Message{.to = std::move(mailbox), .value = &value});
  EXPECT_FALSE(watched.expired());
  Mailbox::post(std::move(message));
  EXPECT_TRUE(watched.expired()) << "with the message in it";
}

TEST(Mailbox, ThrowsIfTheProcessHasNoDescriptorLeft) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer needs descriptors of its own";
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_THROW(Mailbox(), std::system_error);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

TEST(Mailbox, LosesNoMessageOfSeveralThreadsWhileTheLoopSleepsOnTheDescriptor) {
  constexpr int kPosters = 3;
  constexpr int kMessages = 20'000 / kStressShare;
  struct Message {
    int poster;
    int number;
  };
  std::vector<std::vector<Message>> messages(kPosters);
  for (int poster = 0; poster < kPosters; ++poster) {
    for (int i = 0; i < kMessages; ++i) messages[static_cast<std::size_t>(poster)].push_back({poster, i});
  }

  const auto mailbox = std::make_shared<Mailbox>();
  std::vector<std::unique_ptr<Thread>> posters;
  for (auto& own : messages) {
    posters.push_back(std::make_unique<Thread>([&] {
      for (Message& message : own) post(mailbox, &message);
    }));
  }
  std::array<int, kPosters> next{};
  for (int left = kPosters * kMessages; left > 0;) {
    ASSERT_TRUE(readable(*mailbox, kPatience)) << left << " messages are missing";
    for (void* pointer : drained(*mailbox)) {
      const auto* message = static_cast<const Message*>(pointer);
      ASSERT_EQ(message->number, next.at(static_cast<std::size_t>(message->poster))++);
      --left;
    }
  }
  EXPECT_FALSE(readable(*mailbox) && !mailbox->drain().empty());
}

}  // namespace
}  // namespace service_streamer::support
