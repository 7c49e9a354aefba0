#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "service_streamer/batching/request.h"
#include "service_streamer/wire/wire.h"

// ItemTraits as bytes: the keys, the weights, each an array with an entry for each item, u16 size of the tenant, the
// tenant. The flags say what is there.

namespace service_streamer::ipc {

using TraitsRef = std::shared_ptr<const ItemTraits>;

enum : std::uint8_t { kHasKeys = 1, kHasWeights = 2, kHasTenant = 4, kAllTraits = 7 };  // flags

// 0 for nullptr.
std::uint8_t traits_flags(const TraitsRef& traits);

// The size of the traits of so many items.
std::size_t traits_size(const TraitsRef& traits, std::size_t items);

// Writes the traits of some of the items, and advances `to`.
void write_traits(const TraitsRef& traits, std::size_t begin, std::size_t items, char*& to);

// Sets `traits` to nullptr if there are no flags. False: unknown flags, too few bytes, a weight that is negative or
// more than kMaxWeight, or a tenant that is empty, longer than kMaxTenant or not UTF-8. Throws std::bad_alloc.
bool read_traits(wire::ByteReader& reader, std::uint8_t flags, std::size_t items, TraitsRef& traits);

}  // namespace service_streamer::ipc
