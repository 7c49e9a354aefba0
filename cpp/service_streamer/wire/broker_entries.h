#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "service_streamer/wire/wire.h"

// The messages of a broker's queue, and the entries of the queue that a worker has leased.
// python/service_streamer/_redis/README.md describes the layouts. protocol.py there reads refusals and messages of
// other versions.

namespace service_streamer::ipc {

using ClientId = std::array<char, 16>;

// The first bytes of every message.
struct [[gnu::packed]] MessageStart {
  enum : std::uint8_t { kVersion = 1, kRequest = 1, kReply = 2 };

  std::array<char, 2> magic{'S', 'S'};
  std::uint8_t version = kVersion;  // protocol.VERSION
  std::uint8_t kind = kRequest;

  bool operator==(const MessageStart&) const = default;
};

// The head of a request message: a range of the items of one request. The body follows.
struct [[gnu::packed]] RequestHead {
  MessageStart start;
  ClientId client{};  // to which the result is sent
  std::uint64_t request = 0;
  std::uint32_t begin = 0;
  std::uint32_t items = 0;
  std::int64_t deadline = 0;  // in ms of the broker's clock; 0: none
  std::int64_t sent = 0;      // in ms of the broker's clock
  std::int32_t priority = 0;
};

static_assert(sizeof(RequestHead) == 56);

// False: the message is not a request of this version, or is damaged.
bool parse_request_head(std::string_view message, RequestHead& head);

// The entries that a worker machine has: from their arrival until they are acknowledged. Each gets a number, which is
// never 0. For one thread at a time.
//
// An id is the broker's, followed by the suffix of its stream, which begins with a colon. Ids of the first stream have
// no suffix.
class LeasedEntries {
 public:
  struct Entry {
    std::string id;
    RequestHead head;
  };

  // Adds an entry and returns its number. 0: the entry is known already.
  std::uint64_t add(std::string_view id, const RequestHead& head);
  // Marks the entry as answered and returns it. nullopt: it was removed or answered already.
  std::optional<Entry> answer(std::uint64_t number);
  // Removes an entry that was acknowledged or lost, and returns its number. 0: it is not known.
  std::uint64_t remove(std::string_view id);

  bool contains(std::string_view id) const { return numbers_.contains(id); }
  std::vector<std::string> ids() const;
  std::size_t size() const { return numbers_.size(); }
  // The items in unanswered entries of the stream with this suffix.
  std::uint64_t unanswered_items(std::string_view suffix) const;

 private:
  std::unordered_map<std::uint64_t, Entry> unanswered_;
  std::map<std::string, std::uint64_t, std::less<>> numbers_;  // of all entries
  std::uint64_t last_ = 0;
  std::map<std::string, std::uint64_t, std::less<>> unanswered_items_;  // by suffix
};

// The result of a range of the items of a request.
struct BrokerAnswer {
  std::uint64_t request = 0;
  std::uint32_t begin = 0;
  std::uint32_t items = 0;
  std::string_view body;
};

// One message with results for one client. The bodies of the results must stay valid until write().
class ClientReply {
 public:
  static constexpr std::size_t kHead = 8;         // bytes before the first answer
  static constexpr std::size_t kAnswerHead = 20;  // bytes before the body of each answer

  void add(const BrokerAnswer& answer);
  std::size_t size() const { return size_; }
  void write(char* to) const;  // writes size() bytes

  // The bodies become slices of `message`. False: the message is not a reply of this version, or is damaged.
  static bool parse(std::string_view message, std::vector<BrokerAnswer>& answers);

 private:
  std::vector<BrokerAnswer> answers_;
  std::size_t size_ = kHead;
};

}  // namespace service_streamer::ipc
