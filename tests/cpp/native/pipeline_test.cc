// Groups in flight on a device: what overlaps, what waits, and when memory is reused.

#include "service_streamer/native/pipeline.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

#include "support/device.h"
#include "support/device_run.h"
#include "support/threads.h"

namespace service_streamer::support {
namespace {

using native::Pipeline;

class Pipelines : public testing::Test {
 protected:
  Pipeline& make(std::size_t slots = 3) {
    auto own = std::make_unique<FakeDevice>(streams);
    device = own.get();
    pipeline_ = std::make_unique<Pipeline>(std::move(own), sequences_.signature, sequences_.options, slots);
    return *pipeline_;
  }

  const std::shared_ptr<Streams> streams = std::make_shared<Streams>();
  FakeDevice* device = nullptr;

 private:
  const Sequences sequences_;
  std::unique_ptr<Pipeline> pipeline_;
};

TEST_F(Pipelines, CopyTheOutputsBack) {
  Pipeline& pipeline = make();
  Group group(*streams, {{1, 2}, {3}});
  pipeline.launch(group.items, group);
  streams->step_all();
  EXPECT_EQ(group.collected, 0) << "finish() was not called yet";
  pipeline.finish(group);
  EXPECT_EQ(group.numbers, (Numbers{2, 3, 4, 1}));
}

TEST_F(Pipelines, NoteThePhasesOfARun) {
  using Kind = LoggedEvent::Kind;
  Pipeline& pipeline = make();
  Group group(*streams, {{1, 2}, {3}});
  group.phases = std::make_shared<native::PhaseLog>();
  pipeline.launch(group.items, group);
  streams->step_all();
  pipeline.finish(group);
  std::vector<Kind> kinds;
  TimePoint time;
  for (const BatchPhase& phase : group.phases->phases()) {
    kinds.push_back(phase.kind);
    EXPECT_GE(phase.begin, time);
    EXPECT_GE(phase.end, phase.begin);
    time = phase.end;
  }
  EXPECT_EQ(kinds, (std::vector<Kind>{Kind::kCollated, Kind::kCopiedIn, Kind::kComputed, Kind::kCopiedOut,
                                      Kind::kWaited, Kind::kCopiedOut}));
}

TEST_F(Pipelines, CopyTheInputsOfTheNextGroupWhileOneIsComputed) {
  Pipeline& pipeline = make();
  Group first(*streams, {{1}});
  Group second(*streams, {{2}});
  pipeline.launch(first.items, first);
  EXPECT_EQ(streams->step_all(Stream::kCopyIn), 1);
  pipeline.launch(second.items, second);
  EXPECT_EQ(streams->step_all(Stream::kCopyIn), 1) << "although the first has not been computed";
  EXPECT_FALSE(first.computed);
  streams->step_all();
  pipeline.finish(first);
  pipeline.finish(second);
  EXPECT_EQ(first.numbers, Numbers{2});
  EXPECT_EQ(second.numbers, Numbers{3});
}

TEST_F(Pipelines, ComputeTheNextGroupWhileOutputsAreCopiedBack) {
  Pipeline& pipeline = make();
  Group first(*streams, {{1}});
  Group second(*streams, {{2}});
  pipeline.launch(first.items, first);
  pipeline.launch(second.items, second);
  streams->step_all(Stream::kCopyIn);
  EXPECT_EQ(streams->step_all(Stream::kCompute), 2) << "before anything was copied out";
  streams->step_all();
  pipeline.finish(first);
  pipeline.finish(second);
}

TEST_F(Pipelines, ComputeOnlyAfterTheInputsAreCopied) {
  Pipeline& pipeline = make();
  Group group(*streams, {{1}});
  pipeline.launch(group.items, group);
  EXPECT_FALSE(streams->step(Stream::kCompute));
  EXPECT_FALSE(streams->step(Stream::kCopyOut));
  EXPECT_TRUE(streams->step(Stream::kCopyIn));
  EXPECT_FALSE(streams->step(Stream::kCopyOut)) << "outputs are read only once they were computed";
  EXPECT_TRUE(streams->step(Stream::kCompute));
  EXPECT_TRUE(streams->step(Stream::kCopyOut));
  pipeline.finish(group);
}

TEST_F(Pipelines, WaitForTheLastEventBeforeOutputsAreRead) {
  Pipeline& pipeline = make();
  Group group(*streams, {{1}});
  pipeline.launch(group.items, group);
  Thread host([&] { pipeline.finish(group); });
  streams->step_all(Stream::kCopyIn);
  streams->step_all(Stream::kCompute);
  EXPECT_FALSE(host.finished());
  streams->step_all(Stream::kCopyOut);
  EXPECT_TRUE(eventually([&] { return host.finished(); }));
  EXPECT_EQ(group.numbers, Numbers{2});
}

TEST_F(Pipelines, ReuseMemoryOnlyAfterItsGroupIsFinished) {
  Pipeline& pipeline = make(2);
  Group first(*streams, {{1}});
  Group second(*streams, {{2}});
  Group third(*streams, {{3}});
  pipeline.launch(first.items, first);
  pipeline.launch(second.items, second);
  Thread host([&] { pipeline.launch(third.items, third); });
  streams->step_all(Stream::kCopyIn);
  EXPECT_FALSE(host.finished()) << "both slots are taken";
  streams->step(Stream::kCompute);
  streams->step(Stream::kCopyOut);
  EXPECT_TRUE(eventually([&] { return host.finished(); }));
  EXPECT_EQ(first.collected, 1) << "for the one that needed its slot";
  streams->step_all();
  for (Group* group : {&first, &second, &third}) pipeline.finish(*group);
  EXPECT_EQ(first.numbers, Numbers{2});
  EXPECT_EQ(second.numbers, Numbers{3});
  EXPECT_EQ(third.numbers, Numbers{4});
  EXPECT_EQ(first.collected, 1);
}

TEST_F(Pipelines, GatherItemsOnTheDeviceWhenTheyAreReadyAndLeaveTheOutputsThere) {
  Pipeline& pipeline = make();
  const auto ready = device->make_event();
  std::atomic<bool> made{false};
  streams->give(Stream::kCompute, [&] { made = true; });  // stands for the stream that makes the items
  device->record(*ready, Stream::kCompute);
  Group group(*streams, {{1, 2}, {3}}, ready.get());
  group.outputs_stay_on_device = true;
  pipeline.launch(group.items, group);
  EXPECT_FALSE(streams->step(Stream::kCopyIn)) << "they are not there yet";
  EXPECT_TRUE(streams->step(Stream::kCompute));
  EXPECT_TRUE(made);
  EXPECT_EQ(streams->step_all(Stream::kCopyIn), 1) << "one gather, no copies";
  EXPECT_EQ(streams->step_all(Stream::kCompute), 1);
  pipeline.finish(group);
  EXPECT_FALSE(streams->step(Stream::kCopyOut));
  EXPECT_EQ(group.collected, 1);
  EXPECT_TRUE(group.numbers.empty());
  EXPECT_EQ(group.on_device, (Numbers{2, 3, 4, 1}));
}

TEST_F(Pipelines, HaveNothingInFlightAfterAFailedLaunch) {
  Pipeline& pipeline = make();
  Group bad(*streams, {{1}});
  bad.raises = true;
  std::atomic<bool> raised{false};
  Thread host([&] {
    try {
      pipeline.launch(bad.items, bad);
    } catch (const std::runtime_error&) {
      raised = true;
    }
  });
  EXPECT_TRUE(eventually([&] {
    streams->step_all();  // until the copy has read the memory of the group
    return host.finished();
  }));
  EXPECT_TRUE(raised);
  pipeline.abandon(bad);
  EXPECT_EQ(bad.collected, 0);

  Group good(*streams, {{1}});
  pipeline.launch(good.items, good);
  streams->step_all();
  pipeline.finish(good);
  EXPECT_EQ(good.numbers, Numbers{2});
}

TEST_F(Pipelines, ReportMissingMemory) {
  Pipeline& pipeline = make();
  device->allocations_left = 1;  // enough for the pinned input, but not on the device
  Group group(*streams, {{1}});
  std::atomic<bool> raised{false};
  Thread host([&] {
    try {
      pipeline.launch(group.items, group);
    } catch (const std::bad_alloc&) {
      raised = true;
    }
  });
  EXPECT_TRUE(eventually([&] {
    streams->step_all();
    return host.finished();
  }));
  EXPECT_TRUE(raised);
}

TEST_F(Pipelines, ReportAnErrorOfTheDeviceToItsGroup) {
  Pipeline& pipeline = make();
  Group first(*streams, {{1}});
  Group second(*streams, {{2}});
  pipeline.launch(first.items, first);
  pipeline.launch(second.items, second);
  streams->break_down();
  EXPECT_THROW(pipeline.finish(first), std::runtime_error);
  EXPECT_EQ(first.collected, 0);
  streams->step_all();
  pipeline.finish(second);
  EXPECT_EQ(second.numbers, Numbers{3});
}

TEST_F(Pipelines, AnswerCorrectlyInAnyOrderOfTheDevicesWork) {
  Pipeline& pipeline = make(3);
  std::atomic<bool> stop{false};
  Thread device_thread([&] {
    std::mt19937 random(7);
    while (!stop) streams->step(static_cast<Stream>(random() % 3));
  });
  std::deque<std::unique_ptr<Group>> under_way;
  std::deque<Numbers> expected;
  int wrong = 0;
  const auto finish_oldest = [&] {
    pipeline.finish(*under_way.front());
    if (under_way.front()->numbers != expected.front()) ++wrong;
    under_way.pop_front();
    expected.pop_front();
  };
  for (std::int64_t i = 0; i < 2000 / kStressShare; ++i) {
    under_way.push_back(std::make_unique<Group>(*streams, std::vector<Numbers>{{i, i + 1}, {i + 2}}));
    expected.push_back({i + 1, i + 2, i + 3, 1});
    pipeline.launch(under_way.back()->items, *under_way.back());
    if (under_way.size() == static_cast<std::size_t>(1 + i % 5)) finish_oldest();
  }
  while (!under_way.empty()) finish_oldest();
  stop = true;
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace service_streamer::support
