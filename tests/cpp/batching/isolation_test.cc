#include "service_streamer/batching/isolation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "simulation/random.h"

namespace service_streamer {
namespace {

using std::chrono::milliseconds;

struct Range {
  std::size_t request = 0;
  std::uint32_t begin = 0;
  std::uint32_t count = 1;
};

bool follows(const Range& first, const Range& second) {
  return first.request == second.request && first.begin + first.count == second.begin;
}

// A batch and a model. The model fails for guilty requests, for more items than fit into memory, and in the first
// `flaky` runs.
struct Search {
  std::vector<Range> ranges;
  std::set<std::size_t> guilty;
  std::set<std::size_t> hungry{};  // requests for which there is never enough memory
  std::size_t memory = SIZE_MAX;
  int flaky = 0;
  double budget = 1e9;
  milliseconds run_time{1};

  std::vector<std::uint32_t> answered{};  // items by request
  std::set<std::size_t> failed{};
  std::vector<std::vector<Range>> runs{};  // after the first run
  std::set<std::size_t> postponed{};
  MemoryLesson lesson{};
  TimePoint now{};

  enum class Run { kPassed, kFailed, kNoMemory };
  Run run(const std::vector<Range>& group) {
    now += run_time;
    const bool eats = std::ranges::any_of(group, [&](const Range& range) { return hungry.contains(range.request); });
    if (eats || count_items(group) > memory) return Run::kNoMemory;
    if (flaky-- > 0) return Run::kFailed;
    const bool fails = std::ranges::any_of(group, [&](const Range& range) { return guilty.contains(range.request); });
    return fails ? Run::kFailed : Run::kPassed;
  }

  // The search, as a worker does it.
  void search() {
    answered.assign(ranges.size(), 0);
    const std::size_t requests = ranges.size();
    const Run first = run(ranges);
    Isolation isolation({.requests = requests, .items = count_items(ranges), .begin = now - run_time, .end = now},
                        budget);
    if (first != Run::kPassed && isolation.failed(requests, count_items(ranges), first == Run::kNoMemory)) {
      failed.insert(ranges.front().request);
      ranges.clear();
    }
    while (!ranges.empty()) {
      if (isolation.over(now)) {
        std::erase_if(ranges, [&](const Range& range) {
          const bool whole = range.begin == 0 && range.count == sizes.at(range.request);
          if (whole) postponed.insert(range.request);
          return whole;
        });
        if (ranges.empty()) break;
      }
      const BatchCut cut = isolation.next(ranges);
      std::vector<Range> group = ranges;
      keep_before(cut, group);
      cut.items == count_items(ranges) ? ranges.clear() : keep_after(cut, ranges);
      runs.push_back(group);
      const Run became = run(group);
      if (became == Run::kPassed) {
        isolation.passed();
        for (const Range& range : group) answered.at(range.request) += range.count;
      } else if (isolation.failed(group.size(), count_items(group), became == Run::kNoMemory)) {
        EXPECT_EQ(group.size(), 1U) << "a request fails only by a run of its own";
        failed.insert(group.front().request);
        std::erase_if(ranges, [&](const Range& range) { return failed.contains(range.request); });
      } else {
        put_before(ranges, group, [](const Range&) {});
      }
    }
    EXPECT_EQ(isolation.runs(), runs.size());
    lesson = isolation.lesson();
  }

  static Search of(const std::vector<std::uint32_t>& counts) {
    Search search;
    search.sizes = counts;
    for (std::size_t i = 0; i < counts.size(); ++i)
      search.ranges.push_back({.request = i, .begin = 0, .count = counts[i]});
    return search;
  }
  static Search of(std::size_t requests) { return of(std::vector<std::uint32_t>(requests, 1)); }

  std::vector<std::uint32_t> sizes{};
};

// Several choices of k guilty requests of n.
std::vector<std::set<std::size_t>> arrangements(std::size_t n, std::size_t k, int random_ones) {
  std::vector<std::set<std::size_t>> sets;
  for (std::size_t offset = 0; offset + k <= n; ++offset) {
    std::set<std::size_t>& block = sets.emplace_back();
    for (std::size_t i = 0; i < k; ++i) block.insert(offset + i);
  }
  for (std::size_t offset = 0; offset < n / k; ++offset) {
    std::set<std::size_t>& comb = sets.emplace_back();
    for (std::size_t i = 0; i < k; ++i) comb.insert(offset + i * (n / k));
  }
  simulation::Random random(k * 1000 + n);
  for (int i = 0; i < random_ones; ++i) {
    std::set<std::size_t>& some = sets.emplace_back();
    while (some.size() < k) some.insert(static_cast<std::size_t>(random.between(0, static_cast<int>(n) - 1)));
  }
  return sets;
}

double to_find(double n, double k) {
  return k * (std::log2(n / k) + 2);
}

TEST(Isolation, OnlyAFailureWhoseItemsAllRunInPartsSaysHowMuchMemoryThereIs) {
  Search fits = Search::of(64);
  fits.guilty = {5};
  fits.search();
  EXPECT_EQ(fits.lesson.failed, 0U) << "an error of another kind";

  Search too_large = Search::of(64);
  too_large.memory = 20;
  too_large.search();
  EXPECT_EQ(too_large.lesson.failed, 32U);
  EXPECT_EQ(too_large.lesson.passed, 16U);

  Search one_request = Search::of(std::vector<std::uint32_t>{64});
  one_request.memory = 32;
  one_request.search();
  EXPECT_EQ(one_request.lesson.failed, 64U);
  EXPECT_EQ(one_request.lesson.passed, 32U);

  for (std::size_t place : {0U, 31U, 63U}) {
    Search poisoned = Search::of(64);
    poisoned.hungry = {place};
    poisoned.search();
    EXPECT_EQ(poisoned.failed, poisoned.hungry);
    EXPECT_GT(poisoned.lesson.failed, 0U);
    EXPECT_EQ(poisoned.lesson.passed, 0U) << "the item " << place << " may be the cause of every failure";
  }
}

TEST(Isolation, FailsOnlyTheGuiltyRequests) {
  for (const std::size_t n : {1U, 2U, 3U, 4U, 5U, 8U, 13U, 32U, 64U}) {
    for (const std::size_t k : {1U, 2U, 3U, 5U, 8U, 16U, 32U, 64U}) {
      if (k > n) continue;
      for (const std::set<std::size_t>& guilty : arrangements(n, k, 20)) {
        Search search = Search::of(n);
        search.guilty = guilty;
        search.search();
        EXPECT_EQ(search.failed, guilty) << k << " of " << n;
        for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(search.answered[i], guilty.contains(i) ? 0U : 1U);
      }
    }
  }
}

// Each guilty request may take one more run than the search needs to find it: its own, which gives its error.
TEST(Isolation, TakesFewRunsIfAtMostAQuarterAreGuilty) {
  for (std::size_t n = 4; n <= 64; ++n) {
    for (std::size_t k = 1; k <= n / 4; ++k) {
      double total = 0;
      const auto sets = arrangements(n, k, 30);
      for (const std::set<std::size_t>& guilty : sets) {
        Search search = Search::of(n);
        search.guilty = guilty;
        search.search();
        const auto runs = static_cast<double>(search.runs.size());
        EXPECT_LE(runs, to_find(static_cast<double>(n), static_cast<double>(k)) + static_cast<double>(k) + 3)
            << k << " of " << n;
        total += runs;
      }
      EXPECT_LE(total / static_cast<double>(sets.size()), to_find(static_cast<double>(n), static_cast<double>(k)) + 1)
          << "on average, " << k << " of " << n;
    }
  }
}

TEST(Isolation, AnErrorThatOccursOnceFailsNoRequest) {
  for (int failures = 1; failures < 4; ++failures) {
    Search search = Search::of(16);
    search.flaky = failures;
    search.search();
    EXPECT_TRUE(search.failed.empty());
    EXPECT_EQ(std::accumulate(search.answered.begin(), search.answered.end(), 0U), 16U);
  }
}

TEST(Isolation, DoesNotCutRequests) {
  Search search = Search::of({3, 1, 4, 1, 5});
  search.guilty = {2};
  search.search();
  for (const auto& run : search.runs) {
    for (const Range& range : run) EXPECT_EQ(range.count, search.sizes[range.request]);
  }
  EXPECT_EQ(search.failed, std::set<std::size_t>{2});
}

TEST(Isolation, IgnoresTheBudgetIfAtMostAQuarterAreGuilty) {
  for (const std::size_t k : {1U, 3U, 8U}) {
    for (const std::set<std::size_t>& guilty : arrangements(32, k, 20)) {
      Search search = Search::of(32);
      search.guilty = guilty;
      search.budget = 0;
      search.search();
      EXPECT_EQ(search.failed, guilty);
      EXPECT_TRUE(search.postponed.empty());
    }
  }
}

TEST(Isolation, PostponesTheRestWhenTheBudgetIsSpentAndMoreThanAQuarterAreGuilty) {
  Search search = Search::of(32);
  for (std::size_t i = 0; i < 16; ++i) search.guilty.insert(2 * i);
  search.budget = 0;
  search.search();
  EXPECT_EQ(search.failed.size(), 9U) << "one more than a quarter";
  EXPECT_EQ(std::accumulate(search.answered.begin(), search.answered.end(), 0U) + 9 + search.postponed.size(), 32U);
  EXPECT_GT(search.postponed.size(), 10U);
}

TEST(Isolation, ContinuesWithinTheBudgetIfMoreThanAQuarterAreGuilty) {
  Search search = Search::of(32);
  for (std::size_t i = 0; i < 16; ++i) search.guilty.insert(2 * i);
  search.search();
  EXPECT_EQ(search.failed.size(), 16U);
  EXPECT_TRUE(search.postponed.empty());
}

TEST(Isolation, EndsIfTheModelFailsForEveryGroup) {
  Search search = Search::of(32);
  search.flaky = 1'000'000;  // also for single requests
  search.budget = 3;
  search.search();
  EXPECT_LE(search.runs.size(), 45U);
  EXPECT_EQ(search.failed.size() + search.postponed.size(), 32U);
}

// --- memory ---

TEST(Isolation, RunsABatchInPartsIfItIsTooLargeForTheMemory) {
  for (std::size_t memory = 3; memory < 30; ++memory) {
    Search search = Search::of(std::vector<std::uint32_t>(10, 3));
    search.memory = memory;
    search.search();
    EXPECT_EQ(search.answered, std::vector<std::uint32_t>(10, 3));
    EXPECT_TRUE(search.failed.empty() && search.postponed.empty());
    for (const auto& run : search.runs) {
      for (const Range& range : run) EXPECT_EQ(range.count, 3U) << "a request that fits is not cut";
    }
  }
}

TEST(Isolation, CutsARequestThatIsTooLargeForTheMemory) {
  for (const std::size_t memory : {8U, 16U, 63U}) {
    Search search = Search::of(std::vector<std::uint32_t>{64});
    search.memory = memory;
    search.budget = 0;
    search.search();
    EXPECT_EQ(search.answered, std::vector<std::uint32_t>{64}) << memory;
    EXPECT_LE(search.runs.size(), 2 * 64 / memory + 6) << memory;
  }
}

TEST(Isolation, FailsEachRequestIfTheMemoryIsNeverEnough) {
  Search search = Search::of(16);
  search.memory = 0;
  search.search();
  EXPECT_EQ(search.failed.size(), 16U);
  EXPECT_LE(search.runs.size(), 16U + 5U);
}

TEST(Isolation, FindsGuiltyRequestsWithLittleMemory) {
  Search search = Search::of(std::vector<std::uint32_t>(16, 2));
  search.memory = 8;
  search.guilty = {3, 12};
  search.search();
  EXPECT_EQ(search.failed, search.guilty);
  for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(search.answered[i], search.guilty.contains(i) ? 0U : 2U);
}

}  // namespace
}  // namespace service_streamer
