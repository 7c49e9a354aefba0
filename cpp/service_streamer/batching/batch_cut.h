#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace service_streamer {

// Where a failed batch is cut in two, to be run again. The functions below are templates over the type of the parts.
// A part is a range of the items of one request; it has `begin`, `count` and a function follows(part, part).
struct BatchCut {
  std::size_t items = 0;     // items before the cut; 0 means that the batch cannot be cut
  std::size_t parts = 0;     // whole parts before the cut
  std::uint32_t inside = 0;  // if the cut goes through a part: the items of that part before the cut
};

template <typename Part>
std::size_t count_items(const std::vector<Part>& parts) {
  std::size_t items = 0;
  for (const Part& part : parts) items += part.count;
  return items;
}

// Returns the cut in the middle of the items.
template <typename Part>
BatchCut middle_of(const std::vector<Part>& parts) {
  BatchCut cut;
  const std::size_t middle = count_items(parts) / 2;
  while (cut.parts + 1 < parts.size() && cut.items + parts[cut.parts].count <= middle) {
    cut.items += parts[cut.parts++].count;
  }
  cut.inside = static_cast<std::uint32_t>(middle - cut.items);
  cut.items = middle;
  return cut;
}

// Removes the items after the cut.
template <typename Part>
void keep_before(const BatchCut& cut, std::vector<Part>& parts) {
  parts.resize(cut.parts + (cut.inside > 0 ? 1 : 0));
  if (cut.inside > 0) parts.back().count = cut.inside;
}

// Removes the items before the cut.
template <typename Part>
void keep_after(const BatchCut& cut, std::vector<Part>& parts) {
  parts.erase(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(cut.parts));
  parts.front().begin += cut.inside;
  parts.front().count -= cut.inside;
}

// Inserts `first` before `parts`, which undoes a cut. If the cut went through a part, its halves are merged, and
// on_merge() is called with the half that is dropped.
template <typename Part, typename OnMerge>
void put_before(std::vector<Part>& parts, std::vector<Part>& first, OnMerge on_merge) {
  if (!first.empty() && !parts.empty() && follows(first.back(), parts.front())) {
    parts.front().begin = first.back().begin;
    parts.front().count += first.back().count;
    on_merge(first.back());
    first.pop_back();
  }
  parts.insert(parts.begin(), first.begin(), first.end());
}

}  // namespace service_streamer
