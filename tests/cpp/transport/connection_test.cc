#include "service_streamer/transport/connection.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "support/ipc.h"

namespace service_streamer::ipc::support {
namespace {

TEST(Connection, DeliversMessagesInOrder) {
  const Pair pair;
  ASSERT_TRUE(pair.here->send(make_hello(Role::kEngine)));
  ASSERT_TRUE(pair.here->send(make_text(MessageType::kReady, "text")));
  ASSERT_TRUE(pair.here->send(make_opaque(MessageType::kQuery, 5, {})));
  InMessage message;
  Hello hello;
  ASSERT_EQ(pair.there->receive(message), Received::kMessage);
  EXPECT_TRUE(parse(message, hello));
  ASSERT_EQ(pair.there->receive(message), Received::kMessage);
  EXPECT_EQ(message.body.text(), "text");
  ASSERT_EQ(pair.there->receive(message), Received::kMessage);
  EXPECT_EQ(message.type, MessageType::kQuery);
  EXPECT_EQ(message.id, 5U);
  EXPECT_TRUE(message.body.empty());
  EXPECT_EQ(pair.there->receive(message), Received::kNothing);
}

TEST(Connection, DeliversMessagesOfAnySize) {
  const Pair pair;
  std::vector<std::string> texts;
  for (const std::size_t size : {0, 1, 31, 65'503, 65'504, 65'505, 200'000, 1, 3'000'000, 40'000'000, 2}) {
    texts.emplace_back(size, static_cast<char>('a' + texts.size()));
  }
  Thread sender([&] {
    for (const std::string& text : texts) EXPECT_TRUE(pair.here->send_all(make_text(MessageType::kReady, text)));
  });
  InMessage message;
  for (const std::string& text : texts) {
    ASSERT_EQ(receive(*pair.there, message), Received::kMessage);
    ASSERT_TRUE(message.body.text() == text) << text.size();
  }
}

TEST(Connection, QueuesBytesThatTheSocketDoesNotTake) {
  const Pair pair;
  const std::string large(3'000'000, 'q');
  ASSERT_TRUE(pair.here->send(make_text(MessageType::kReady, large)));
  ASSERT_TRUE(pair.here->send(make_text(MessageType::kReady, "after it")));
  EXPECT_GT(pair.here->unsent(), 1'000'000U);
  InMessage message;
  while (pair.there->receive(message) == Received::kNothing) ASSERT_TRUE(pair.here->flush());
  EXPECT_TRUE(message.body.text() == large);
  ASSERT_TRUE(pair.here->flush());
  EXPECT_EQ(pair.here->unsent(), 0U);
  ASSERT_EQ(receive(*pair.there, message), Received::kMessage);
  EXPECT_EQ(message.body.text(), "after it");
}

TEST(Connection, GathersMoreSlicesThanOneSystemCallTakes) {
  const Pair pair;
  const Bytes slice = Bytes::copy_of(std::string(5000, 's'));
  OutMessage out = make_text(MessageType::kReady, "head");
  for (int i = 0; i < 3000; ++i) out.tail.push_back(slice);
  Thread sender([&] { EXPECT_TRUE(pair.here->send_all(std::move(out))); });
  InMessage message;
  ASSERT_EQ(receive(*pair.there, message), Received::kMessage);
  std::string expected = "head";
  expected.resize(4 + 15'000'000, 's');
  EXPECT_TRUE(message.body.text() == expected);
}

TEST(Connection, ReportsTheEndAfterTheLastMessage) {
  Pair pair;
  ASSERT_TRUE(pair.here->send(make_text(MessageType::kReady, "last words")));
  pair.here.reset();
  InMessage message;
  ASSERT_EQ(receive(*pair.there, message), Received::kMessage);
  EXPECT_EQ(message.body.text(), "last words");
  EXPECT_EQ(receive(*pair.there, message), Received::kClosed);
}

TEST(Connection, CanStillReceiveWhenItCannotSend) {
  Pair pair;
  ASSERT_TRUE(pair.there->send(make_text(MessageType::kReady, "last words")));
  pair.there.reset();
  EXPECT_FALSE(pair.here->send(make_text(MessageType::kReady, "too late")));
  EXPECT_FALSE(pair.here->flush());
  EXPECT_EQ(pair.here->unsent(), 0U);
  InMessage message;
  ASSERT_EQ(receive(*pair.here, message), Received::kMessage);
  EXPECT_EQ(message.body.text(), "last words");
  EXPECT_EQ(receive(*pair.here, message), Received::kClosed);
}

TEST(Connection, ASignalInterruptsAWaitingThread) {
  const Pair pair;
  Received last = Received::kMessage;
  Thread waiting([&] {
    InMessage message;
    last = pair.there->wait_and_receive(message);
  });
  EXPECT_TRUE(waiting.interrupt_until([&] { return waiting.finished(); }));
  EXPECT_EQ(last, Received::kNothing);
}

TEST(SocketPair, IsConnectedAndNotInherited) {
  const auto [a, b] = socket_pair();
  EXPECT_EQ(write(a.get(), "x", 1), 1);
  EXPECT_TRUE(readable(b.get()));
  EXPECT_NE(fcntl(a.get(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_NE(fcntl(b.get(), F_GETFD) & FD_CLOEXEC, 0);
}

}  // namespace
}  // namespace service_streamer::ipc::support
