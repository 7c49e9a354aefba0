#include "service_streamer/batching/memory_ceiling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "simulation/random.h"

namespace service_streamer {
namespace {

// A device of 1,000 units, of which another user takes and frees 300. Items of 10 to 100 units are queued without end. A
// batch that fails runs again in halves.
struct Device {
  double most = 3'000;            // the weight of a batch without a ceiling
  std::vector<int> changes = {};  // the batches before which the other user takes its units, frees them, and so on
  std::uint64_t seed = 1;

  int failed = 0;       // batches
  double items = 0;     // in all batches
  double possible = 0;  // in as many batches of the right size

  void run(int batches) {
    simulation::Random random(seed);
    const auto item = [&random] { return static_cast<double>(random.between(10, 100)); };
    const auto fill = [&item](double& next, double limit, double& count) {
      double sum = 0;
      do {
        sum += next;
        next = item();
        ++count;
      } while (sum + next <= limit);
      return sum;
    };
    MemoryCeiling ceiling;
    double next = item(), next_of_best = item();
    for (int i = 0; i < batches; ++i) {
      const auto changed = std::ranges::count_if(changes, [i](int change) { return change <= i; });
      const double room = changed % 2 == 0 ? 1'000 : 700;
      const double limit = std::min(most, ceiling.limit());
      const double sum = fill(next, limit, items);
      fill(next_of_best, room, possible);
      if (sum <= room) {
        if (limit < most) ceiling.passed(sum, most, 0);
        continue;
      }
      ++failed;
      double part = sum;
      while (part / 2 > room) part /= 2;
      ceiling.failed(part, part / 2);
    }
  }
};

TEST(MemoryCeiling, StaysNearTheMemoryThatIsFreeAndSeldomFails) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    for (const std::vector<int>& changes : {std::vector<int>{}, {3'333, 6'666}, {500, 9'500}, {100, 200}, {5'000}}) {
      for (double most : {1'500.0, 30'000.0}) {
        Device device{.most = most, .changes = changes, .seed = seed};
        device.run(10'000);
        EXPECT_LE(device.failed, 10) << "seed " << seed << ", " << changes.size() << " changes, most " << most;
        EXPECT_GE(device.items, 0.9 * device.possible) << "seed " << seed << ", " << changes.size() << " changes";
      }
    }
  }
}

TEST(MemoryCeiling, ALimitJustBelowThatOfBatchesIsFoundOnce) {
  for (double most : {2, 3, 8, 64, 256}) {
    const double room = most - 1;
    MemoryCeiling ceiling;
    int failed = 0;
    double items = 0;
    for (int i = 0; i < 10'000; ++i) {
      const double size = std::min(most, std::floor(ceiling.limit()));
      if (size > room) {
        ++failed;
        ceiling.failed(size, std::floor(size / 2));
      } else {
        ceiling.passed(size, most, 1);
      }
      items += size;
    }
    EXPECT_LE(failed, 10) << most;
    EXPECT_GE(items, 0.9 * room * 10'000) << most;
  }
}

TEST(MemoryCeiling, TheFirstFailureHalvesAndTheClimbEndsBelowTheNext) {
  MemoryCeiling ceiling;
  EXPECT_EQ(ceiling.limit(), MemoryCeiling::kNone);
  ceiling.failed(64, 32);
  EXPECT_EQ(ceiling.limit(), 32);
  for (int i = 0; i < 4; ++i) ceiling.passed(32, 64, 1);
  EXPECT_EQ(ceiling.limit(), 33);
  ceiling.failed(33, 16);
  EXPECT_EQ(ceiling.limit(), 32) << "which has run";
  for (int i = 0; i < 2047; ++i) ceiling.passed(32, 64, 1);
  EXPECT_EQ(ceiling.limit(), 32);
  ceiling.passed(32, 64, 1);
  EXPECT_EQ(ceiling.limit(), 33);
}

TEST(MemoryCeiling, BatchesThatWereCutBeforeTheLastFailureTeachNothing) {
  MemoryCeiling ceiling;
  ceiling.failed(64, 32);
  ceiling.failed(64, 32);
  EXPECT_EQ(ceiling.limit(), 32);
  for (int i = 0; i < 4; ++i) ceiling.passed(32, 64, 1);
  EXPECT_EQ(ceiling.limit(), 33) << "the climb is not slower";
}

TEST(MemoryCeiling, FailuresThatFollowEachOtherMakeTheClimbSlower) {
  MemoryCeiling ceiling;
  ceiling.failed(64, 32);
  ceiling.passed(32, 64, 1);
  ceiling.failed(30, 15);
  EXPECT_EQ(ceiling.limit(), 15);
  for (int i = 0; i < 7; ++i) ceiling.passed(15, 64, 1);
  EXPECT_EQ(ceiling.limit(), 15);
  ceiling.passed(15, 64, 1);
  EXPECT_EQ(ceiling.limit(), 16);
}

TEST(MemoryCeiling, TheClimbIsFastAgainLongAfterTheLastFailure) {
  MemoryCeiling ceiling;
  for (double size = 2'048; size > 8; size /= 2) ceiling.failed(size, size / 2);
  for (int i = 0; i < 2'048; ++i) ceiling.passed(8, 2'048, 1);
  const double before = ceiling.limit();
  for (int i = 0; i < 4; ++i) ceiling.passed(ceiling.limit(), 2'048, 1);
  EXPECT_EQ(ceiling.limit(), before + 1);
}

TEST(MemoryCeiling, IsForgottenOnceItDoesNotMatter) {
  MemoryCeiling ceiling;
  ceiling.failed(64, 32);
  for (int i = 0; i < 4 * 32; ++i) ceiling.passed(ceiling.limit(), 64, 1);
  EXPECT_EQ(ceiling.limit(), MemoryCeiling::kNone);
}

}  // namespace
}  // namespace service_streamer
