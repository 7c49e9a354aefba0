#include "service_streamer/transport/address.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "support/ipc.h"

namespace service_streamer::ipc::support {
namespace {

int error_of(const auto& call) {
  try {
    call();
  } catch (const std::system_error& error) {
    return error.code().value();
  }
  return 0;
}

// Runs in a temporary folder.
class Address : public testing::Test {
 protected:
  Address() {
    std::string folder = testing::TempDir() + "address_test_XXXXXX";
    folder_ = mkdtemp(folder.data());
    path_ = folder_ + "/socket";
    abstract_ = "@service_streamer_test_" + folder_.substr(folder_.size() - 6) + std::to_string(getpid());
  }
  ~Address() override {
    unlink(path_.c_str());
    rmdir(folder_.c_str());
  }

  static bool connected(const FileDescriptor& listener, const FileDescriptor& client) {
    EXPECT_TRUE(readable(listener.get()));
    const FileDescriptor server = accept_from(listener);
    char letter = 0;
    return server && write(client.get(), "x", 1) == 1 && readable(server.get()) && read(server.get(), &letter, 1) == 1;
  }

  std::string folder_;
  std::string path_;
  std::string abstract_;
};

TEST_F(Address, ConnectsToAnAbstractName) {
  const FileDescriptor listener = listen_on(abstract_);
  EXPECT_TRUE(connected(listener, connect_to(abstract_)));
  EXPECT_FALSE(accept_from(listener)) << "there is no second connection";
}

TEST_F(Address, ConnectsToAPath) {
  const FileDescriptor listener = listen_on(path_);
  EXPECT_TRUE(connected(listener, connect_to(path_)));
}

TEST_F(Address, TheSocketFileIsForItsUserOnly) {
  const FileDescriptor listener = listen_on(path_);
  struct stat status{};
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
}

TEST_F(Address, TheSocketOfADeadProcessIsReplaced) {
  listen_on(path_);
  EXPECT_EQ(access(path_.c_str(), F_OK), 0);
  const FileDescriptor listener = listen_on(path_);
  EXPECT_TRUE(connected(listener, connect_to(path_)));
}

TEST_F(Address, TheSocketOfALivingProcessIsInUse) {
  const FileDescriptor at_path = listen_on(path_);
  const FileDescriptor by_name = listen_on(abstract_);
  EXPECT_EQ(error_of([&] { listen_on(path_); }), EADDRINUSE);
  EXPECT_EQ(error_of([&] { listen_on(abstract_); }), EADDRINUSE);
  EXPECT_TRUE(connected(by_name, connect_to(abstract_)));
}

TEST_F(Address, AFileIsNotReplaced) {
  const FileDescriptor file(open(path_.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  EXPECT_EQ(error_of([&] { listen_on(path_); }), EADDRINUSE);
  EXPECT_EQ(access(path_.c_str(), F_OK), 0);
}

TEST_F(Address, ConnectFailsWithoutAListener) {
  EXPECT_EQ(error_of([&] { connect_to(abstract_); }), ECONNREFUSED);
  EXPECT_EQ(error_of([&] { connect_to(path_); }), ENOENT);
  EXPECT_EQ(error_of([&] { listen_on(folder_ + "/missing/socket"); }), ENOENT);
}

TEST_F(Address, MustNotBeEmptyOrTooLong) {
  for (const std::string& address : {std::string(), std::string("@"), std::string(108, 'x'), std::string("a\0b", 3)}) {
    EXPECT_THROW(listen_on(address), std::invalid_argument);
    EXPECT_THROW(connect_to(address), std::invalid_argument);
  }
  const std::string longest = "@" + std::string(106, 'x');
  const FileDescriptor listener = listen_on(longest);
  EXPECT_TRUE(connected(listener, connect_to(longest)));
}

TEST_F(Address, AnotherUsersProcessIsRefusedOnEitherSide) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  const FileDescriptor listener = listen_on(abstract_);
  const pid_t child = fork();
  if (child == 0) {
    if (setresuid(65534, 65534, 65534) != 0) _exit(2);
    _exit(error_of([&] { connect_to(abstract_); }) == EACCES ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << "the client refuses the server";
  EXPECT_TRUE(readable(listener.get()));
  EXPECT_FALSE(accept_from(listener)) << "the server refuses the client";
}

TEST_F(Address, WithoutADescriptorLeftAConnectionIsRefusedAndTheNextOneIsServed) {
  const FileDescriptor listener = listen_on(abstract_);
  const FileDescriptor client = connect_to(abstract_);
  {
    const DescriptorsLeft none(0);
    EXPECT_FALSE(accept_from(listener));
    EXPECT_FALSE(readable(listener.get(), Duration::zero())) << "the connection stays in the queue";
    EXPECT_TRUE(readable(client.get())) << "the client does not see the end of file";
  }
  EXPECT_TRUE(connected(listener, connect_to(abstract_)));
}

TEST_F(Address, AForkedChildThatListensHasItsOwnReserveDescriptor) {
  const FileDescriptor parents = listen_on(path_);
  const pid_t child = fork();
  if (child == 0) {
    const FileDescriptor listener = listen_on(abstract_);
    const FileDescriptor client = connect_to(abstract_);
    const DescriptorsLeft none(0);
    _exit(!accept_from(listener) && !readable(listener.get(), Duration::zero()) ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(Address, TheErrorNamesAFolderThatStaysLocked) {
  const FileDescriptor folder(open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(flock(folder.get(), LOCK_EX), 0);
  EXPECT_EQ(error_of([&] { listen_on(path_); }), EWOULDBLOCK);
}

TEST_F(Address, ConnectDoesNotBlockWhenTheQueueIsFull) {
  const FileDescriptor listener = listen_on(abstract_);
  ASSERT_EQ(listen(listener.get(), 0), 0);
  std::vector<FileDescriptor> clients;
  EXPECT_EQ(error_of([&] {
              for (int i = 0; i < 3; ++i) clients.push_back(connect_to(abstract_));
            }),
            EAGAIN);
}

TEST_F(Address, LeavesNoDescriptorOpen) {
  listen_on(abstract_);
  const std::size_t before = open_descriptors();
  error_of([&] { listen_on(folder_); });
  error_of([&] { connect_to(abstract_); });
  EXPECT_FALSE(accept_from(listen_on(abstract_)));
  EXPECT_EQ(open_descriptors(), before);
}

}  // namespace
}  // namespace service_streamer::ipc::support
