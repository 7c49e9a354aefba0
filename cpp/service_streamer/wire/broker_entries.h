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

// The messages of a broker's queue, and which entries of it a worker has. python/service_streamer/_redis/README.md
// describes the layouts; protocol.py there reads refusals and messages of other versions.

namespace service_streamer::ipc {

using ClientId = std::array<char, 16>;

// What a message is.
struct [[gnu::packed]] MessageStart {
  enum : std::uint8_t { kVersion = 1, kRequest = 1, kReply = 2 };

  std::array<char, 2> magic{'S', 'S'};
  std::uint8_t version = kVersion;  // protocol.VERSION
  std::uint8_t kind = kRequest;

  bool operator==(const MessageStart&) const = default;
};

// Some items of one request, as in the message; the body follows.
struct [[gnu::packed]] RequestHead {
  MessageStart start;
  ClientId client{};  // gets the answer
  std::uint64_t request = 0;
  std::uint32_t begin = 0;
  std::uint32_t items = 0;
  std::int64_t deadline = 0;  // in ms on the broker's clock, as `sent`; 0: none
  std::int64_t sent = 0;
  std::int32_t priority = 0;
};

static_assert(sizeof(RequestHead) == 56);

// False: it is no request of this version, or damaged.
bool parse_request_head(std::string_view message, RequestHead& head);

// Which entries are here: from their arrival until they are acknowledged, by numbers of our own. For one thread at a time.
class LeasedEntries {
 public:
  struct Entry {
    std::string id;  // in the queue
    RequestHead head;
  };

  // Its number; 0: it is here already.
  std::uint64_t add(std::string_view id, const RequestHead& head);
  // It has its answer; nothing: it is not here any more.
  std::optional<Entry> answer(std::uint64_t number);
  // The number that it had; 0: it is not here.
  std::uint64_t remove(std::string_view id);

  bool contains(std::string_view id) const { return numbers_.contains(id); }
  std::vector<std::string> ids() const;
  std::size_t size() const { return numbers_.size(); }
  std::uint64_t unanswered_items() const { return unanswered_items_; }

 private:
  std::unordered_map<std::uint64_t, Entry> unanswered_;
  std::map<std::string, std::uint64_t, std::less<>> numbers_;  // of all
  std::uint64_t last_ = 0;
  std::uint64_t unanswered_items_ = 0;
};

// The result of some items of a request.
struct BrokerAnswer {
  std::uint64_t request = 0;
  std::uint32_t begin = 0;
  std::uint32_t items = 0;
  std::string_view body;
};

// The answers to one client that go in one message. Their bodies must live until that is written.
class ClientReply {
 public:
  static constexpr std::size_t kHead = 8;         // bytes before the answers
  static constexpr std::size_t kAnswerHead = 20;  // and before the body of each

  void add(const BrokerAnswer& answer);
  std::size_t size() const { return size_; }
  void write(char* to) const;  // so many bytes

  // Slices of `message` become their bodies. False: it is no reply of this version, or damaged.
  static bool parse(std::string_view message, std::vector<BrokerAnswer>& answers);

 private:
  std::vector<BrokerAnswer> answers_;
  std::size_t size_ = kHead;
};

}  // namespace service_streamer::ipc
