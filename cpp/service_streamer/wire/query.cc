#include "service_streamer/wire/query.h"

#include <cstring>

namespace service_streamer::ipc {
namespace {

struct AskOnTheWire {
  std::uint32_t question;
  std::uint16_t given;  // which of the settings
  std::uint16_t policy;
  std::uint64_t request;
  std::uint64_t batch_size;
  std::int64_t max_latency;
};

enum : std::uint16_t { kBatchSize = 1, kMaxLatency = 2, kPolicy = 4, kAll = 7 };

}  // namespace

Bytes to_bytes(const Ask& ask) {
  const EngineChange& change = ask.change;
  const auto bit = [](bool given, std::uint16_t its) { return given ? its : std::uint16_t{0}; };
  const AskOnTheWire wire{.question = static_cast<std::uint32_t>(ask.question),
                          .given = static_cast<std::uint16_t>(bit(change.batch_size.has_value(), kBatchSize) |
                                                              bit(change.max_latency.has_value(), kMaxLatency) |
                                                              bit(change.policy.has_value(), kPolicy)),
                          .policy = static_cast<std::uint16_t>(change.policy.value_or(PolicyKind{})),
                          .request = ask.request,
                          .batch_size = change.batch_size.value_or(0),
                          .max_latency = change.max_latency.value_or(Duration::zero()).count()};
  return Bytes::copy_of({reinterpret_cast<const char*>(&wire), sizeof wire});
}

bool from_bytes(const Bytes& bytes, Ask& ask) {
  AskOnTheWire wire;
  if (bytes.size() != sizeof wire) return false;
  std::memcpy(&wire, bytes.data(), sizeof wire);
  if (wire.question < static_cast<std::uint32_t>(Question::kCancel) ||
      wire.question > static_cast<std::uint32_t>(Question::kWaitReady) || wire.given > kAll ||
      wire.policy > static_cast<std::uint16_t>(PolicyKind::kWindow)) {
    return false;
  }
  ask.question = static_cast<Question>(wire.question);
  ask.request = wire.request;
  ask.change = {};
  if ((wire.given & kBatchSize) != 0) ask.change.batch_size = wire.batch_size;
  if ((wire.given & kMaxLatency) != 0) ask.change.max_latency = Duration(wire.max_latency);
  if ((wire.given & kPolicy) != 0) ask.change.policy = static_cast<PolicyKind>(wire.policy);
  return true;
}

Bytes to_bytes(const Told& told) {
  return Bytes::copy_of((told.yes ? "y" : "n") + told.text);
}

bool from_bytes(const Bytes& bytes, Told& told) {
  const std::string_view text = bytes.text();
  if (text.empty() || (text[0] != 'y' && text[0] != 'n')) return false;
  told.yes = text[0] == 'y';
  told.text = text.substr(1);
  return true;
}

}  // namespace service_streamer::ipc
