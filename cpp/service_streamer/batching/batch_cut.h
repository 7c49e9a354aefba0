#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace service_streamer {

// Where a batch that failed is cut in two, to be run again. Its parts have a `begin` and a `count`: each is a range of
// the items of one request.
struct BatchCut {
  std::size_t items = 0;     // before it; 0: the batch cannot be cut
  std::size_t parts = 0;     // before it, whole ones
  std::uint32_t inside = 0;  // items before it of the part that it goes through, if it does
};

template <typename Part>
std::size_t count_items(const std::vector<Part>& parts) {
  std::size_t items = 0;
  for (const Part& part : parts) items += part.count;
  return items;
}

// The cut in the middle of the items.
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

template <typename Part>
void keep_before(const BatchCut& cut, std::vector<Part>& parts) {
  parts.resize(cut.parts + (cut.inside > 0 ? 1 : 0));
  if (cut.inside > 0) parts.back().count = cut.inside;
}

template <typename Part>
void keep_behind(const BatchCut& cut, std::vector<Part>& parts) {
  parts.erase(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(cut.parts));
  parts.front().begin += cut.inside;
  parts.front().count -= cut.inside;
}

// Puts `first` back before `parts`. Where a part was cut in two, one of them is dropped: on_merge(part) is told.
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
