#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace service_streamer {

// Where a batch that failed is cut in two, to be run again. Its parts, which are ranges of the items of one request each, have a
// `begin` and a `count`.
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

// The cut nearest to the middle, between parts or, if asked for, between items.
template <typename Part>
BatchCut middle_of(const std::vector<Part>& parts, bool between_items) {
  const std::size_t middle = count_items(parts) / 2;
  BatchCut cut;
  while (cut.parts + 1 < parts.size() && cut.items + parts[cut.parts].count <= std::max<std::size_t>(middle, 1)) {
    cut.items += parts[cut.parts++].count;
  }
  if (between_items && cut.items < middle) {
    cut.inside = static_cast<std::uint32_t>(middle - cut.items);
    cut.items = middle;
  } else if (cut.parts == 0 && parts.size() > 1) {
    cut.items = parts[cut.parts++].count;
  }
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

}  // namespace service_streamer
