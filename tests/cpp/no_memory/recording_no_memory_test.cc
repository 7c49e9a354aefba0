// The events of a recording are not copied when it ends.

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "service_streamer/batching/event_log.h"
#include "service_streamer/wire/message.h"
#include "support/no_memory.h"
#include "support/recording.h"

namespace service_streamer::support {
namespace {

using std::chrono::seconds;

TEST(RecordingWithoutMemory, EndsAndIsSent) {
  constexpr std::size_t kEvents = 10'000;
  EventLog log(TimePoint(), seconds(1), kEvents);
  for (std::size_t i = 0; i < kEvents + 1; ++i) log.add({.time = static_cast<std::int64_t>(i)});
  ipc::OutMessage message;
  {
    const NoMemoryFor large(kEvents);
    message = ipc::make_query_reply(1, {.yes = true, .text = log.finish(TimePoint(seconds(1)))});
    EXPECT_EQ(large.felt(), 0);
  }
  EXPECT_EQ(message.head.front(), 'y');
  EXPECT_EQ(events_in(message.head.substr(1)).size(), kEvents);
}

}  // namespace
}  // namespace service_streamer::support
