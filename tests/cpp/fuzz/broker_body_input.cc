#include "fuzz/broker_body_input.h"

#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "service_streamer/wire/broker_body.h"
#include "service_streamer/wire/broker_entries.h"

namespace service_streamer::ipc::fuzz {
namespace {

void require(bool holds) {
  if (!holds) abort();
}

Bytes bytes_of(std::span<const std::uint8_t> input) {
  return Bytes::copy_of({reinterpret_cast<const char*>(input.data()), input.size()});
}

bool read_request(const Bytes& body) {
  auto payload = std::make_shared<Payload>();
  TraceContext context;
  TraitsRef traits;
  if (!parse_request(body, *payload, context, traits)) return false;
  const auto items = static_cast<std::uint32_t>(payload->items());
  const Chunk range{
      .items = items, .payload = std::move(payload), .context = std::move(context), .traits = std::move(traits)};
  std::string written(range.body_size(), '\0');
  range.write_body(written.data());
  require(written == body.text());
  return true;
}

bool read_result(const Bytes& body, std::uint32_t items) {
  EndedCall result;
  if (!parse_result(body, items, result)) return false;
  require(encoding_error(result).empty());
  std::string written(body_size(result), '\0');
  write_body(result, written.data());
  require(written == body.text());
  return true;
}

bool read_reply(std::string_view message) {
  std::vector<BrokerAnswer> answers;
  if (!ClientReply::parse(message, answers)) return false;
  ClientReply reply;
  for (const BrokerAnswer& answer : answers) reply.add(answer);
  std::string written(reply.size(), '\0');
  reply.write(written.data());
  require(written == message);
  return true;
}

}  // namespace

std::size_t read_as_bodies(std::span<const std::uint8_t> input) {
  std::size_t accepted = read_request(bytes_of(input)) ? 1 : 0;
  if (!input.empty() && read_result(bytes_of(input.subspan(1)), input[0])) ++accepted;
  const Bytes copy = bytes_of(input);
  if (read_reply(copy.text())) ++accepted;
  return accepted;
}

}  // namespace service_streamer::ipc::fuzz
