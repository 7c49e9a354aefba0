// EventLog, and what an Engine records in one.

#include "service_streamer/batching/event_log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <clocale>
#include <string>
#include <vector>

#include "support/recording.h"
#include "support/threads.h"

namespace service_streamer::support {
namespace {

using Kind = LoggedEvent::Kind;
using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr EngineOptions kByFour{.batch_size = 4, .policy = PolicyKind::kGreedy};

std::vector<Kind> kinds_in(const std::string& bytes) {
  std::vector<Kind> kinds;
  for (const LoggedEvent& event : events_in(bytes)) kinds.push_back(event.kind);
  return kinds;
}

std::vector<std::int64_t> times_in(const std::string& bytes) {
  std::vector<std::int64_t> times;
  for (const LoggedEvent& event : events_in(bytes)) times.push_back(event.time);
  return times;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// --- the ring ---

TEST(EventLog, KeepsEventsInOrder) {
  EventLog log(TimePoint(seconds(0)), seconds(1), 3);
  for (const std::int64_t time : {5, 6, 7}) log.add({.time = time});
  EXPECT_EQ(log.lost(), 0U);
  EXPECT_EQ(times_in(log.finish(TimePoint(seconds(1)))), (std::vector<std::int64_t>{5, 6, 7}));
}

TEST(EventLog, ReplacesTheOldestEventsAndCountsThem) {
  EventLog log(TimePoint(seconds(0)), seconds(1), 3);
  for (std::int64_t time = 1; time <= 8; ++time) log.add({.time = time});
  EXPECT_EQ(log.lost(), 5U);
  const std::string bytes = log.finish(TimePoint(seconds(1)));
  EXPECT_EQ(times_in(bytes), (std::vector<std::int64_t>{6, 7, 8}));
  EXPECT_TRUE(contains(bytes, "\"lost\":5")) << bytes;
}

TEST(EventLog, ItsHeaderIsJsonInEveryLocale) {
  const std::string before = setlocale(LC_NUMERIC, nullptr);
  if (setlocale(LC_NUMERIC, "de_DE.UTF-8") == nullptr) GTEST_SKIP() << "no locale with a decimal comma";
  const std::string bytes = EventLog(TimePoint(seconds(0)), seconds(1), 3).finish(TimePoint(seconds(1)));
  setlocale(LC_NUMERIC, before.c_str());
  const std::size_t number = bytes.find("\"unix_start\":") + 13;
  EXPECT_EQ(bytes.find(',', number), bytes.find(",\"lost\"", number)) << bytes;
}

TEST(EventLog, IgnoresEventsAfterItsLimit) {
  EventLog log(TimePoint(seconds(1)), seconds(1), 3);
  EXPECT_TRUE(log.add({.time = Duration(seconds(2)).count()}));
  EXPECT_FALSE(log.add({.time = Duration(seconds(2)).count() + 1}));
  const std::string bytes = log.finish(TimePoint(seconds(9)));
  EXPECT_EQ(times_in(bytes).size(), 1U);
  EXPECT_TRUE(contains(bytes, "\"end\":2000000000,")) << bytes;
  EventLog other(TimePoint(seconds(1)), seconds(1), 3);
  EXPECT_TRUE(contains(other.finish(TimePoint(Duration(1'500'000'000))), "\"end\":1500000000,"));
}

TEST(EventLog, LowersLimitsThatAreTooLarge) {
  EventLog log(TimePoint(seconds(0)), hours(24), 0);
  log.add({.time = Duration(EventLog::kLongest).count()});
  log.add({.time = Duration(EventLog::kLongest).count() + 1});
  log.add({.time = 0});
  EXPECT_EQ(log.lost(), 1U) << "the least room is for one event";
}

TEST(EventLog, NamesReasonsAndOutcomes) {
  const std::string bytes = EventLog(TimePoint(seconds(0)), seconds(1), 1).finish(TimePoint(seconds(1)));
  EXPECT_TRUE(contains(bytes, R"("close_reasons":["full","idle",)")) << bytes;
  EXPECT_TRUE(contains(bytes, R"(,"drain"],"outcomes":["none","answered",)")) << bytes;
  EXPECT_EQ(bytes.front(), '\n') << "there is no event";
}

// --- the engine ---

TEST(EngineRecording, HasWhatHappenedToRequestsAndBatches) {
  Engine engine(kByFour);
  const std::uint64_t recording = engine.recorder().start(minutes(1), 100);
  ASSERT_NE(recording, 0U);
  const CallPtr large = submitted(engine, 6, {.priority = 2});
  Batch first = take(engine);
  Batch second = take(engine);
  answer(engine, first);
  answer(engine, second);
  const std::vector<LoggedEvent> events = events_in(engine.recorder().finish(recording));
  ASSERT_EQ(events.size(), 8U);
  const std::vector<Kind> kinds{Kind::kArrived, Kind::kCut,       Kind::kRange,     Kind::kCut,
                                Kind::kRange,   Kind::kCompleted, Kind::kCompleted, Kind::kEnded};
  for (std::size_t i = 0; i < kinds.size(); ++i) EXPECT_EQ(events[i].kind, kinds[i]) << i;
  const auto id = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(static_cast<Request*>(large.get())));
  EXPECT_EQ(events[0].value, id);
  EXPECT_EQ(events[0].items, 6U);
  EXPECT_EQ(events[0].priority, 2);
  EXPECT_EQ(events[0].queued_items, 6U);
  EXPECT_EQ(events[1].items, 4U);
  EXPECT_EQ(events[1].worker, static_cast<std::uint32_t>(gettid()));
  EXPECT_EQ(events[1].detail, static_cast<std::uint8_t>(CloseReason::kFull));
  EXPECT_EQ(events[1].queued_items, 2U);
  EXPECT_EQ(events[1].running_batches, 1);
  EXPECT_EQ(events[2].value, id);
  EXPECT_EQ(events[2].batch, events[1].batch);
  EXPECT_EQ(events[4].items, 2U);
  EXPECT_NE(events[3].batch, events[1].batch);
  EXPECT_EQ(events[5].batch, events[1].batch);
  EXPECT_EQ(events[6].detail, static_cast<std::uint8_t>(Outcome::kAnswered));
  EXPECT_EQ(events[6].running_batches, 0);
  EXPECT_EQ(events[7].value, id);
  for (std::size_t i = 1; i < events.size(); ++i) EXPECT_GE(events[i].time, events[i - 1].time);
}

TEST(EngineRecording, HasThePartsOfAFailedBatch) {
  Engine engine(kByFour);
  const std::uint64_t recording = engine.recorder().start(minutes(1), 100);
  const CallPtr one = submitted(engine, 2);
  const CallPtr other = submitted(engine, 2);
  Batch batch = take(engine);
  const std::uint32_t whole = batch.id;
  Batch first;
  engine.split(batch, middle_of(batch.ranges), first);
  engine.join(batch, first);
  engine.split(batch, middle_of(batch.ranges), first);
  answer(engine, first);
  answer(engine, batch);
  std::vector<LoggedEvent> fronts;
  for (const LoggedEvent& event : events_in(engine.recorder().finish(recording))) {
    if (event.kind == Kind::kSplit || event.kind == Kind::kJoined) fronts.push_back(event);
  }
  ASSERT_EQ(fronts.size(), 3U);
  EXPECT_EQ(fronts[0].value, whole);
  EXPECT_EQ(fronts[1].batch, fronts[0].batch);
  EXPECT_EQ(fronts[1].items, 2U);
  EXPECT_NE(fronts[2].batch, fronts[0].batch);
}

TEST(EngineRecording, HasWhatTheEngineIsToldOfWorkerProcesses) {
  Engine engine(kByFour);
  const CallPtr call = submitted(engine, 1);
  Batch batch = take(engine);
  const std::uint32_t id = batch.id;
  engine.recorder().record_sent(batch, 7);  // there is no recording
  const std::uint64_t recording = engine.recorder().start(minutes(1), 100);
  engine.recorder().record_sent(batch, 7);
  engine.recorder().record_returned(batch);
  engine.recorder().record_times(batch, Duration(1), Duration(2), Duration(-3));
  const std::vector<LoggedEvent> events = events_in(engine.recorder().finish(recording));
  answer(engine, batch);
  ASSERT_EQ(events.size(), 5U);
  EXPECT_EQ(events[0].worker, 7U);
  EXPECT_EQ(events[0].batch, id);
  EXPECT_EQ(events[3].value, 2U);
  EXPECT_EQ(events[4].value, 0U) << "a worker process is not trusted";
}

TEST(EngineRecording, HasThePhasesOfABatch) {
  Engine engine(kByFour);
  const CallPtr call = submitted(engine, 1);
  Batch batch = take(engine);
  const TimePoint begin = Clock::now();
  const BatchPhase collate{.kind = Kind::kCollated, .begin = begin, .end = begin + Duration(7)};
  engine.recorder().record_phases(batch, {&collate, 1});  // there is no recording
  const std::uint64_t recording = engine.recorder().start(minutes(1), 100);
  engine.recorder().record_phases(batch, {&collate, 1});
  const std::vector<LoggedEvent> events = events_in(engine.recorder().finish(recording));
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].kind, Kind::kCollated);
  EXPECT_EQ(events[0].batch, batch.id);
  EXPECT_EQ(events[0].time, (begin + Duration(7)).time_since_epoch().count());
  EXPECT_EQ(events[0].value, 7U);
  answer(engine, batch);
}

TEST(EngineRecording, StopsByItselfAfterItsLimit) {
  Engine engine(kByFour);
  const std::uint64_t recording = engine.recorder().start(Duration::zero(), 100);
  EXPECT_TRUE(engine.recorder().recording());
  pass_time_until(Clock::now() + Duration(1));
  const CallPtr call = submitted(engine, 1);
  EXPECT_FALSE(engine.recorder().recording());
  serve_all(engine);
  EXPECT_EQ(engine.recorder().start(minutes(1), 100), 0U) << "its events are kept";
  EXPECT_NE(engine.recorder().finish(recording), "");
  EXPECT_NE(engine.recorder().start(minutes(1), 100), 0U);
  EXPECT_TRUE(engine.recorder().recording());
}

TEST(EngineRecording, IsRefusedWhileThereIsAnother) {
  Engine engine(kByFour);
  const std::uint64_t first = engine.recorder().start(minutes(1), 10);
  EXPECT_EQ(engine.recorder().start(minutes(1), 10), 0U);
  EXPECT_EQ(engine.recorder().finish(first + 1), "");
  EXPECT_NE(engine.recorder().finish(first), "");
  EXPECT_EQ(engine.recorder().finish(first), "");
  const std::uint64_t second = engine.recorder().start(minutes(1), 10);
  EXPECT_GT(second, first);
  EXPECT_EQ(engine.recorder().finish(first), "") << "an old number does not end a new recording";
  EXPECT_NE(engine.recorder().finish(second), "");
}

TEST(EngineRecording, MayEndAfterTheEngineWasClosed) {
  Engine engine(kByFour);
  const std::uint64_t recording = engine.recorder().start(minutes(1), 10);
  const CallPtr call = submitted(engine, 1);
  close(engine, false);
  EXPECT_EQ(kinds_in(engine.recorder().finish(recording)), (std::vector<Kind>{Kind::kArrived, Kind::kEnded}));
}

}  // namespace
}  // namespace service_streamer::support
