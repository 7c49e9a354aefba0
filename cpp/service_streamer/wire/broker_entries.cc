#include "service_streamer/wire/broker_entries.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

namespace service_streamer::ipc {
namespace {

constexpr std::uint8_t kProtocol = 1;  // protocol.VERSION
constexpr std::uint8_t kRequestKind = 1;
constexpr std::uint8_t kReplyKind = 2;

// Little-endian, without padding.
template <typename T>
void get_number(std::string_view message, std::size_t& at, T& value) {
  std::make_unsigned_t<T> bits = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    bits |= static_cast<std::make_unsigned_t<T>>(static_cast<std::uint8_t>(message[at++])) << (8 * i);
  }
  value = static_cast<T>(bits);
}

template <typename T>
void put_number(char*& to, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) *to++ = static_cast<char>(value >> (8 * i));
}

constexpr std::size_t kStart = 4;  // bytes that tell what a message is

bool starts_as(std::string_view message, std::uint8_t kind) {
  const char start[kStart] = {'S', 'S', static_cast<char>(kProtocol), static_cast<char>(kind)};
  return message.starts_with(std::string_view(start, kStart));
}

void put_start(char*& to, std::uint8_t kind) {
  *to++ = 'S';
  *to++ = 'S';
  put_number(to, kProtocol);
  put_number(to, kind);
}

}  // namespace

void write_request_head(const RequestHead& head, char* to) {
  put_start(to, kRequestKind);
  to = std::copy(head.client.begin(), head.client.end(), to);
  put_number(to, head.request);
  put_number(to, head.begin);
  put_number(to, head.items);
  put_number(to, head.deadline);
  put_number(to, head.sent);
  put_number(to, head.priority);
}

bool parse_request_head(std::string_view message, RequestHead& head) {
  if (message.size() < kRequestHead || !starts_as(message, kRequestKind)) return false;
  std::size_t at = kStart;
  std::copy_n(message.data() + at, head.client.size(), head.client.data());
  at += head.client.size();
  get_number(message, at, head.request);
  get_number(message, at, head.begin);
  get_number(message, at, head.items);
  get_number(message, at, head.deadline);
  get_number(message, at, head.sent);
  get_number(message, at, head.priority);
  return true;
}

std::uint64_t HeldEntries::add(std::string_view id, const RequestHead& head) {
  const auto [known, fresh] = numbers_.try_emplace(std::string(id), last_ + 1);
  if (!fresh) return 0;
  unanswered_.emplace(++last_, Entry{.id = known->first, .head = head});
  unanswered_items_ += head.items;
  return last_;
}

std::optional<HeldEntries::Entry> HeldEntries::answer(std::uint64_t number) {
  const auto found = unanswered_.find(number);
  if (found == unanswered_.end()) return {};
  Entry entry = std::move(found->second);
  unanswered_.erase(found);
  unanswered_items_ -= entry.head.items;
  return entry;
}

std::uint64_t HeldEntries::remove(std::string_view id) {
  const auto found = numbers_.find(id);
  if (found == numbers_.end()) return 0;
  const std::uint64_t number = found->second;
  numbers_.erase(found);
  answer(number);
  return number;
}

std::vector<std::string> HeldEntries::ids() const {
  std::vector<std::string> ids;
  ids.reserve(numbers_.size());
  for (const auto& [id, number] : numbers_) ids.push_back(id);
  return ids;
}

void ClientReply::add(const BrokerAnswer& answer) {
  answers_.push_back(answer);
  size_ += kAnswerHead + answer.body.size();
}

void ClientReply::write(char* to) const {
  put_start(to, kReplyKind);
  put_number(to, static_cast<std::uint32_t>(answers_.size()));
  for (const BrokerAnswer& answer : answers_) {
    put_number(to, answer.request);
    put_number(to, answer.begin);
    put_number(to, answer.items);
    put_number(to, static_cast<std::uint32_t>(answer.body.size()));
    to = std::copy(answer.body.begin(), answer.body.end(), to);
  }
}

bool ClientReply::parse(std::string_view message, std::vector<BrokerAnswer>& answers) {
  if (message.size() < kHead || !starts_as(message, kReplyKind)) return false;
  std::size_t at = kStart;
  std::uint32_t count = 0;
  get_number(message, at, count);
  if ((message.size() - at) / kAnswerHead < count) return false;
  answers.clear();
  answers.reserve(count);
  while (answers.size() < count) {
    if (message.size() - at < kAnswerHead) return false;
    BrokerAnswer& answer = answers.emplace_back();
    std::uint32_t size = 0;
    get_number(message, at, answer.request);
    get_number(message, at, answer.begin);
    get_number(message, at, answer.items);
    get_number(message, at, size);
    if (message.size() - at < size) return false;
    answer.body = message.substr(at, size);
    at += size;
  }
  return at == message.size();
}

}  // namespace service_streamer::ipc
