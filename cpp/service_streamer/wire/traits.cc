#include "service_streamer/wire/traits.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <string>
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

bool is_utf8(std::string_view text) {
  constexpr std::array<std::uint32_t, 5> kLeast{0, 0, 0x80, 0x800, 0x10000};  // character of so many bytes
  for (std::size_t i = 0; i < text.size();) {
    const auto first = static_cast<std::uint8_t>(text[i++]);
    const int bytes = std::countl_one(first);  // 0: one byte
    if (bytes == 1 || bytes > 4) return false;
    std::uint32_t character = first & (0x7FU >> bytes);
    for (int more = bytes; more > 1; --more) {
      if (i == text.size() || (static_cast<std::uint8_t>(text[i]) & 0xC0U) != 0x80U) return false;
      character = character << 6U | (static_cast<std::uint8_t>(text[i++]) & 0x3FU);
    }
    const bool surrogate = character >= 0xD800 && character < 0xE000;
    if (surrogate || character < kLeast.at(static_cast<std::size_t>(bytes)) || character > 0x10FFFF) return false;
  }
  return true;
}

bool read_tenant(wire::ByteReader& reader, std::string& tenant) {
  std::uint16_t size = 0;
  Bytes bytes;
  if (!reader.read(size) || size == 0 || size > kMaxTenant || !reader.read(bytes, size)) return false;
  tenant = bytes.text();
  return is_utf8(tenant);
}

}  // namespace

std::uint8_t traits_flags(const TraitsRef& traits) {
  if (traits == nullptr) return 0;
  const int flags = (traits->keys.empty() ? 0 : kHasKeys) | (traits->weights.empty() ? 0 : kHasWeights) |
                    (traits->tenant.empty() ? 0 : kHasTenant);
  return static_cast<std::uint8_t>(flags);
}

std::size_t traits_size(const TraitsRef& traits, std::size_t items) {
  if (traits == nullptr) return 0;
  const std::size_t arrays = (traits->keys.empty() ? 0 : 1) + (traits->weights.empty() ? 0 : 1);
  const std::size_t tenant = traits->tenant.empty() ? 0 : sizeof(std::uint16_t) + traits->tenant.size();
  return arrays * items * sizeof(std::uint64_t) + tenant;
}

void write_traits(const TraitsRef& traits, std::size_t begin, std::size_t items, char*& to) {
  if (traits == nullptr) return;
  write_array(traits->keys, begin, items, to);
  write_array(traits->weights, begin, items, to);
  if (traits->tenant.empty()) return;
  wire::append(to, static_cast<std::uint16_t>(traits->tenant.size()));
  wire::append_text(to, traits->tenant);
}

bool read_traits(wire::ByteReader& reader, std::uint8_t flags, std::size_t items, TraitsRef& traits) {
  traits = nullptr;
  if (flags == 0) return true;
  const auto read = std::make_shared<ItemTraits>();
  if (flags > kAllTraits || !reader.read(read->keys, (flags & kHasKeys) != 0 ? items : 0) ||
      !reader.read(read->weights, (flags & kHasWeights) != 0 ? items : 0) ||
      !std::ranges::all_of(read->weights, [](double weight) { return weight >= 0 && weight <= kMaxWeight; }) ||
      ((flags & kHasTenant) != 0 && !read_tenant(reader, read->tenant))) {
    return false;
  }
  traits = read;
  return true;
}

}  // namespace service_streamer::ipc
