#include "service_streamer/client/pending_queries.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/threads.h"

namespace service_streamer::support {
namespace {

using ipc::QueryKind;
using Wait = Completion::Wait;

// The Server would refuse a second start, and has no events for a second finish.
TEST(PendingQueries, ASignalDoesNotRepeatAQueryAboutARecording) {
  for (const QueryKind kind : {QueryKind::kStartRecording, QueryKind::kFinishRecording}) {
    Sleeping io_thread;
    ipc::PendingQueries queries(io_thread.waiter());
    ipc::QueryReply reply;
    Thread asking([&] {
      Sleeping sleeping;
      EXPECT_EQ(queries.query({.kind = kind, .request = 0, .change = {}}, reply, sleeping.waiter(), TimePoint::max()),
                Wait::kDone);
    });
    EXPECT_TRUE(eventually([&] { return queries.has_unsent() && asking.asleep(); }));
    const std::vector<ipc::OutMessage> sent = queries.take_unsent();
    EXPECT_EQ(sent.size(), 1U);
    const long switches = asking.voluntary_switches();
    EXPECT_TRUE(asking.interrupt_until([&] { return asking.voluntary_switches() > switches; }));
    EXPECT_FALSE(asking.finished());
    EXPECT_FALSE(queries.has_unsent());
    for (const ipc::OutMessage& message : sent) {
      EXPECT_TRUE(queries.reply(message.id, {.yes = true, .text = "events"}));
    }
    queries.close();  // so that the thread ends after a failure, too
    EXPECT_TRUE(eventually([&] { return asking.finished(); }));
    EXPECT_EQ(reply.text, "events");
  }
}

}  // namespace
}  // namespace service_streamer::support
