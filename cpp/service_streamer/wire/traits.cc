#include "service_streamer/wire/traits.h"

#include <algorithm>
#include <string_view>
#include <vector>

namespace service_streamer::ipc {
namespace {

static_assert(sizeof(double) == sizeof(std::uint64_t));

template <typename T>
void write_array(const std::vector<T>& array, std::size_t begin, std::size_t items, char*& to) {
  if (array.empty()) return;
  wire::append_text(to, {reinterpret_cast<const char*>(array.data() + begin), items * sizeof(T)});
}

}  // namespace

std::uint8_t traits_flags(const TraitsRef& traits) {
  if (traits == nullptr) return 0;
  const int flags = (traits->keys.empty() ? 0 : kHasKeys) | (traits->weights.empty() ? 0 : kHasWeights);
  return static_cast<std::uint8_t>(flags);
}

std::size_t traits_size(const TraitsRef& traits, std::size_t items) {
  if (traits == nullptr) return 0;
  const std::size_t arrays = (traits->keys.empty() ? 0 : 1) + (traits->weights.empty() ? 0 : 1);
  return arrays * items * sizeof(std::uint64_t);
}

void write_traits(const TraitsRef& traits, std::size_t begin, std::size_t items, char*& to) {
  if (traits == nullptr) return;
  write_array(traits->keys, begin, items, to);
  write_array(traits->weights, begin, items, to);
}

bool read_traits(wire::ByteReader& reader, std::uint8_t flags, std::size_t items, TraitsRef& traits) {
  traits = nullptr;
  if (flags == 0) return true;
  const auto read = std::make_shared<ItemTraits>();
  if (flags > kAllTraits || !reader.read(read->keys, (flags & kHasKeys) != 0 ? items : 0) ||
      !reader.read(read->weights, (flags & kHasWeights) != 0 ? items : 0) ||
      !std::ranges::all_of(read->weights, [](double weight) { return weight >= 0 && weight <= kMaxWeight; })) {
    return false;
  }
  traits = read;
  return true;
}

}  // namespace service_streamer::ipc
