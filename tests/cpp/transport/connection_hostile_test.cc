// A Connection rejects everything that a peer sends against the protocol.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "service_streamer/transport/connection.h"
#include "service_streamer/wire/frame.h"
#include "support/ipc.h"

namespace service_streamer::ipc::support {
namespace {

std::string bytes_of(const auto& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

FrameHeader header_of(MessageType type, std::uint64_t body, std::uint32_t descriptors = 0) {
  return {
      .magic = kMagic, .type = type, .reserved = 0, .descriptors = descriptors, .reserved2 = 0, .body = body, .id = 1};
}

class HostilePeer : public testing::Test {
 protected:
  HostilePeer() {
    auto [a, b] = socket_pair();
    peer_ = std::move(a);
    connection_ = Connection::make(std::move(b));
    before_ = open_descriptors();
  }

  // Sends raw bytes with `descriptors` descriptors.
  void send(const std::string& bytes, std::size_t descriptors = 0) {
    iovec piece{.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
    msghdr header{};
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(253 * sizeof(int))> control{};
    std::vector<FileDescriptor> fds;
    if (descriptors > 0) {
      header.msg_control = control.data();
      header.msg_controllen = CMSG_SPACE(descriptors * sizeof(int));
      cmsghdr* rights = CMSG_FIRSTHDR(&header);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(descriptors * sizeof(int));
      for (std::size_t i = 0; i < descriptors; ++i) {
        const int fd = fds.emplace_back(dup(0)).get();
        std::memcpy(CMSG_DATA(rights) + i * sizeof(int), &fd, sizeof fd);
      }
    }
    ASSERT_EQ(sendmsg(peer_.get(), &header, 0), static_cast<ssize_t>(bytes.size()));
  }

  // Receives all messages. Returns the last status.
  Received received() {
    InMessage message;
    for (;;) {
      const Received last = connection_->receive(message);
      if (last == Received::kMessage) continue;
      if (last != Received::kNothing || !readable(connection_->fd(), Duration::zero())) return last;
    }
  }

  FileDescriptor peer_;
  std::shared_ptr<Connection> connection_;
  std::size_t before_ = 0;
};

TEST_F(HostilePeer, AnInvalidHeaderIsRejected) {
  send(std::string(sizeof(FrameHeader), 'x'));
  EXPECT_EQ(received(), Received::kCorrupt);
}

TEST_F(HostilePeer, InvalidFieldsAreRejected) {
  std::vector<FrameHeader> headers(9, header_of(MessageType::kBatch, 100));
  headers[0].magic = kMagic + 1;
  headers[1].type = MessageType{0};
  headers[2].type = MessageType{16};
  headers[3].reserved = 1;
  headers[4].reserved2 = 1;
  headers[5].body = kMaxBody + 1;
  headers[6].body = UINT64_MAX;
  headers[7].descriptors = 7;  // too many blocks for a hundred bytes
  headers[8] = header_of(MessageType::kQuery, 100, 1);
  for (const FrameHeader& header : headers) {
    auto [a, b] = socket_pair();
    peer_ = std::move(a);
    connection_ = Connection::make(std::move(b));
    send(bytes_of(header));
    EXPECT_EQ(received(), Received::kCorrupt);
  }
}

TEST_F(HostilePeer, AHugeBodyIsNotAllocatedAhead) {
  send(bytes_of(header_of(MessageType::kSetup, kMaxBody)) + "only this");
  EXPECT_EQ(received(), Received::kNothing);
  peer_.reset();
  EXPECT_EQ(received(), Received::kClosed);
}

TEST_F(HostilePeer, AMessageMayArriveByteByByte) {
  const std::string text = bytes_of(header_of(MessageType::kReady, 5)) + "hello";
  InMessage message;
  for (std::size_t i = 0; i + 1 < text.size(); ++i) {
    send(text.substr(i, 1));
    ASSERT_EQ(connection_->receive(message), Received::kNothing);
  }
  send(text.substr(text.size() - 1));
  ASSERT_EQ(connection_->receive(message), Received::kMessage);
  EXPECT_EQ(message.body.text(), "hello");
}

TEST_F(HostilePeer, CannotReleaseWhatItWasNotLent) {
  const std::uint64_t handle = 0;
  send(bytes_of(header_of(MessageType::kReleased, 8)) + bytes_of(handle));
  EXPECT_EQ(received(), Received::kCorrupt);
}

TEST_F(HostilePeer, CannotReleaseTwice) {
  const auto pool = SharedPool::make();
  Payload payload = payload_of({"item"});
  payload.blocks.push_back({.item = 0, .block = block_of(*pool, "x")});
  ASSERT_TRUE(connection_->send(batch_of(1, payload)));
  const std::uint64_t handle = 0;
  const std::string release = bytes_of(header_of(MessageType::kReleased, 8)) + bytes_of(handle);
  send(release);
  EXPECT_EQ(received(), Received::kNothing);
  send(release);
  EXPECT_EQ(received(), Received::kCorrupt);
}

TEST_F(HostilePeer, CannotSendAnEmptyRelease) {
  send(bytes_of(header_of(MessageType::kReleased, 0)));
  EXPECT_EQ(received(), Received::kCorrupt);
}

TEST_F(HostilePeer, CannotReleaseHalfAHandle) {
  send(bytes_of(header_of(MessageType::kReleased, 12)) + std::string(12, '\0'));
  EXPECT_EQ(received(), Received::kCorrupt);
}

TEST_F(HostilePeer, CannotSendDescriptorsWithAnotherMessageType) {
  send(bytes_of(header_of(MessageType::kReady, 5)) + "hello", 1);
  EXPECT_EQ(received(), Received::kCorrupt);
  connection_->shut_down();
  EXPECT_EQ(open_descriptors(), before_);
}

TEST_F(HostilePeer, CannotSendMoreDescriptorsThanItSays) {
  send(bytes_of(header_of(MessageType::kBatch, 64, 4)), 4);
  EXPECT_EQ(received(), Received::kNothing);
  for (int i = 0; i < 3; ++i) {
    send("x", 200);
    EXPECT_EQ(received(), Received::kNothing);
  }
  EXPECT_EQ(open_descriptors(), before_ + 4) << "the rest is closed by the kernel";
  send(std::string(61, 'x'), 1);
  EXPECT_EQ(received(), Received::kNothing);
  connection_->shut_down();
  EXPECT_EQ(open_descriptors(), before_);
}

TEST_F(HostilePeer, CannotSendMoreDescriptorsThanItSaysAtOnce) {
  send(bytes_of(header_of(MessageType::kBatch, 64, 4)), 5);
  EXPECT_EQ(received(), Received::kCorrupt);
  connection_->shut_down();
  EXPECT_EQ(open_descriptors(), before_);
}

TEST_F(HostilePeer, CannotSendFewerDescriptorsThanItSays) {
  send(bytes_of(header_of(MessageType::kBatch, 64, 4)) + std::string(64, '\0'), 3);
  EXPECT_EQ(received(), Received::kCorrupt);
  connection_->shut_down();
  EXPECT_EQ(open_descriptors(), before_);
}

TEST_F(HostilePeer, CannotSendManyDescriptorsBeforeAHeader) {
  const std::string header = bytes_of(header_of(MessageType::kBatch, 64, 4));
  send(header.substr(0, 1), 253);
  EXPECT_EQ(received(), Received::kNothing);
  send(header.substr(1, 1), 253);
  EXPECT_EQ(received(), Received::kCorrupt);
  connection_->shut_down();
  EXPECT_EQ(open_descriptors(), before_);
}

TEST_F(HostilePeer, LeavesNoDescriptorOpenAfterAPartialMessage) {
  send(bytes_of(header_of(MessageType::kBatch, 1000, 9)) + std::string(10, 'x'), 9);
  EXPECT_EQ(received(), Received::kNothing);
  EXPECT_EQ(open_descriptors(), before_ + 9);
  peer_.reset();
  EXPECT_EQ(received(), Received::kClosed);
  connection_.reset();
  EXPECT_EQ(open_descriptors(), before_ - 2);
}

}  // namespace
}  // namespace service_streamer::ipc::support
