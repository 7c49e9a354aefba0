#include "service_streamer/wire/broker_entries.h"

#include <algorithm>
#include <utility>

namespace service_streamer::ipc {
namespace {

// Followed by the answers.
struct [[gnu::packed]] ReplyHead {
  MessageStart start{.kind = MessageStart::kReply};
  std::uint32_t answers = 0;
};
// Followed by `size` bytes.
struct [[gnu::packed]] AnswerHead {
  std::uint64_t request = 0;
  std::uint32_t begin = 0;
  std::uint32_t items = 0;
  std::uint32_t size = 0;
};
static_assert(sizeof(ReplyHead) == ClientReply::kHead && sizeof(AnswerHead) == ClientReply::kAnswerHead);

// The suffix of the stream in the id of an entry.
std::string_view suffix_of(std::string_view id) {
  return id.substr(std::min(id.find(':'), id.size()));
}

}  // namespace

bool parse_request_head(std::string_view message, RequestHead& head) {
  return wire::ByteReader(message).read(head) && head.start == MessageStart{.kind = MessageStart::kRequest};
}

std::uint64_t LeasedEntries::add(std::string_view id, const RequestHead& head) {
  std::uint64_t& items = unanswered_items_.try_emplace(std::string(suffix_of(id))).first->second;
  const auto [known, fresh] = numbers_.try_emplace(std::string(id), last_ + 1);
  if (!fresh) return 0;
  unanswered_.emplace(++last_, Entry{.id = known->first, .head = head});
  items += head.items;
  return last_;
}

std::optional<LeasedEntries::Entry> LeasedEntries::answer(std::uint64_t number) {
  const auto found = unanswered_.find(number);
  if (found == unanswered_.end()) return {};
  Entry entry = std::move(found->second);
  unanswered_.erase(found);
  unanswered_items_.find(suffix_of(entry.id))->second -= entry.head.items;
  return entry;
}

std::uint64_t LeasedEntries::remove(std::string_view id) {
  const auto found = numbers_.find(id);
  if (found == numbers_.end()) return 0;
  const std::uint64_t number = found->second;
  numbers_.erase(found);
  answer(number);
  return number;
}

std::uint64_t LeasedEntries::unanswered_items(std::string_view suffix) const {
  const auto found = unanswered_items_.find(suffix);
  return found != unanswered_items_.end() ? found->second : 0;
}

std::vector<std::string> LeasedEntries::ids() const {
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
  wire::append(to, ReplyHead{.answers = static_cast<std::uint32_t>(answers_.size())});
  for (const auto& [request, begin, items, body] : answers_) {
    wire::append(to, AnswerHead{request, begin, items, static_cast<std::uint32_t>(body.size())});
    wire::append_text(to, body);
  }
}

bool ClientReply::parse(std::string_view message, std::vector<BrokerAnswer>& answers) {
  wire::ByteReader reader(message);
  ReplyHead head;
  answers.clear();
  if (!reader.read(head) || head.start != MessageStart{.kind = MessageStart::kReply} ||
      !reader.resize(answers, head.answers, kAnswerHead)) {
    return false;
  }
  for (BrokerAnswer& answer : answers) {
    AnswerHead fields;
    Bytes body;
    if (!reader.read(fields) || !reader.read(body, fields.size)) return false;
    answer = {.request = fields.request, .begin = fields.begin, .items = fields.items, .body = body.text()};
  }
  return reader.at_end();
}

}  // namespace service_streamer::ipc
