#include "service_streamer/ipc/ask.h"

#include <cstring>

namespace service_streamer::ipc {
namespace {

struct AskOnTheWire {
  std::uint32_t question;
  std::uint32_t policy;
  std::uint64_t request;
  std::uint64_t batch_size;
  std::int64_t max_latency;
};

}  // namespace

Bytes to_bytes(const Ask& ask) {
  const AskOnTheWire wire{.question = static_cast<std::uint32_t>(ask.question),
                          .policy = static_cast<std::uint32_t>(ask.options.policy),
                          .request = ask.request,
                          .batch_size = ask.options.batch_size,
                          .max_latency = ask.options.max_latency.count()};
  return Bytes::copy_of({reinterpret_cast<const char*>(&wire), sizeof wire});
}

bool from_bytes(const Bytes& bytes, Ask& ask) {
  AskOnTheWire wire;
  if (bytes.size() != sizeof wire) return false;
  std::memcpy(&wire, bytes.data(), sizeof wire);
  if (wire.question < static_cast<std::uint32_t>(Question::kCancel) ||
      wire.question > static_cast<std::uint32_t>(Question::kWaitReady) ||
      wire.policy > static_cast<std::uint32_t>(PolicyKind::kWindow)) {
    return false;
  }
  ask.question = static_cast<Question>(wire.question);
  ask.request = wire.request;
  ask.options.batch_size = wire.batch_size;
  ask.options.max_latency = Duration(wire.max_latency);
  ask.options.policy = static_cast<PolicyKind>(wire.policy);
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
