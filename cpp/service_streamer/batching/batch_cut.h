#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace service_streamer {

// Where a failed batch is cut in two, to be run again. The functions below are templates over the type of the ranges.
// A range of the items of one request has `begin`, `count` and a function follows(range, range).
struct BatchCut {
  std::size_t items = 0;     // items before the cut; 0 means that the batch cannot be cut
  std::size_t ranges = 0;    // whole ranges before the cut
  std::uint32_t inside = 0;  // if the cut goes through a range: the items of that range before the cut
};

template <typename Range>
std::size_t count_items(const std::vector<Range>& ranges) {
  std::size_t items = 0;
  for (const Range& range : ranges) items += range.count;
  return items;
}

// Returns the cut in the middle of the items.
template <typename Range>
BatchCut middle_of(const std::vector<Range>& ranges) {
  BatchCut cut;
  const std::size_t middle = count_items(ranges) / 2;
  while (cut.ranges + 1 < ranges.size() && cut.items + ranges[cut.ranges].count <= middle) {
    cut.items += ranges[cut.ranges++].count;
  }
  cut.inside = static_cast<std::uint32_t>(middle - cut.items);
  cut.items = middle;
  return cut;
}

// Removes the items after the cut.
template <typename Range>
void keep_before(const BatchCut& cut, std::vector<Range>& ranges) {
  ranges.resize(cut.ranges + (cut.inside > 0 ? 1 : 0));
  if (cut.inside > 0) ranges.back().count = cut.inside;
}

// Removes the items before the cut.
template <typename Range>
void keep_after(const BatchCut& cut, std::vector<Range>& ranges) {
  ranges.erase(ranges.begin(), ranges.begin() + static_cast<std::ptrdiff_t>(cut.ranges));
  ranges.front().begin += cut.inside;
  ranges.front().count -= cut.inside;
}

// Inserts `first` before `ranges`, which undoes a cut. If the cut went through a range, its halves are merged, and
// on_merge() is called with the half that is dropped.
template <typename Range, typename OnMerge>
void put_before(std::vector<Range>& ranges, std::vector<Range>& first, OnMerge on_merge) {
  if (!first.empty() && !ranges.empty() && follows(first.back(), ranges.front())) {
    ranges.front().begin = first.back().begin;
    ranges.front().count += first.back().count;
    on_merge(first.back());
    first.pop_back();
  }
  ranges.insert(ranges.begin(), first.begin(), first.end());
}

}  // namespace service_streamer
