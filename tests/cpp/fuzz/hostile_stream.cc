#include "fuzz/hostile_stream.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "service_streamer/shared_memory/shared_memory.h"
#include "service_streamer/transport/connection.h"
#include "service_streamer/wire/message.h"
#include "support/sockets.h"

namespace service_streamer::ipc::fuzz {
namespace {

constexpr std::size_t kBlockSize = 8192;

void require(bool holds) {
  if (!holds) abort();
}

// The descriptors to send, by kind.
const std::array<int, 4>& descriptors() {
  static const std::array<int, 4> fds = [] {
    static const std::shared_ptr<SharedPool> pool = SharedPool::make();
    void* data = nullptr;
    static const BlockRef block = pool->allocate(kBlockSize, data);
    std::memset(data, 'x', kBlockSize);
    const int unsealed = memfd_create("unsealed", MFD_CLOEXEC);
    require(ftruncate(unsealed, kBlockSize) == 0);
    return std::array<int, 4>{block->fd(), unsealed, socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), block->fd()};
  }();
  return fds;
}

void write_raw(int socket, std::span<const std::uint8_t> bytes, std::size_t count, std::uint8_t kinds) {
  iovec piece{.iov_base = const_cast<std::uint8_t*>(bytes.data()), .iov_len = bytes.size()};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(253 * sizeof(int))> control{};
  if (count > 0) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(count * sizeof(int));
    for (std::size_t i = 0; i < count; ++i) {
      const int fd = descriptors().at((kinds >> (2 * (i % 4))) & 3U);
      std::memcpy(CMSG_DATA(rights) + i * sizeof(int), &fd, sizeof fd);
    }
  }
  [[maybe_unused]] const ssize_t sent = sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
}

// Reads accepted blocks to the end.
void touch(const BlockRef& block) {
  if (block->fd() < 0) return;
  require(block->size() <= kBlockSize);
  const PrivateMapping mapping(block);
  for (std::size_t i = 0; i < mapping.size(); ++i) static_cast<volatile char*>(mapping.data())[i] = 'y';
}

void touch(const Payload& payload) {
  for (const Payload::Block& block : payload.blocks) {
    require(block.item < payload.items());
    touch(block.block);
  }
}

void touch(const Result& result) {
  for (const BlockRef& block : result.blocks) touch(block);
}

bool same(const TraitsRef& one, const TraitsRef& other) {
  return one == nullptr ? other == nullptr
                        : other != nullptr && one->keys == other->keys && one->weights == other->weights &&
                              one->tenant == other->tenant;
}

bool same(const TraceContext& one, const TraceContext& other) {
  return one == nullptr ? other == nullptr : other != nullptr && *one == *other;
}

// Sends a parsed message over another connection, and parses it again.
template <typename T>
void pass_on(OutMessage message, T& parsed) {
  auto [a, b] = socket_pair();
  const auto here = Connection::make(std::move(a));
  const auto there = Connection::make(std::move(b));
  require(here->send(std::move(message)));
  InMessage received;
  for (;;) {
    const Received got = there->receive(received);
    if (got == Received::kMessage) break;
    require(got == Received::kNothing && here->flush());
  }
  require(parse(received, parsed));
}

bool pass_on(InMessage& message) {
  switch (message.type) {
    case MessageType::kHello: {
      Hello hello;
      return parse(message, hello);
    }
    case MessageType::kCancel: {
      std::vector<std::uint64_t> ids;
      return parse(message, ids);
    }
    case MessageType::kBatch: {
      BatchMessage batch;
      if (!parse(message, batch)) return false;
      touch(batch.payload);
      std::vector<PayloadRange> chunks;
      std::uint32_t begin = 0;
      for (const RangeHead& range : batch.ranges) {
        chunks.push_back({.payload = &batch.payload, .begin = begin, .count = range.items});
        begin += range.items;
      }
      BatchMessage again;
      pass_on(make_batch(message.id, batch.head, batch.ranges, chunks), again);
      require(again.payload.ends == batch.payload.ends && again.payload.bytes.text() == batch.payload.bytes.text());
      require(again.payload.blocks.size() == batch.payload.blocks.size());
      require(again.head.reason == batch.head.reason && again.head.age == batch.head.age);
      require(std::ranges::equal(again.ranges, batch.ranges, [](const RangeHead& one, const RangeHead& other) {
        return one.queue_time == other.queue_time && same(one.context, other.context);
      }));
      return true;
    }
    case MessageType::kReply: {
      ReplyMessage reply;
      if (!parse(message, reply)) return false;
      for (const Result& result : reply.results) touch(result);
      ReplyMessage again;
      pass_on(make_reply(message.id, reply), again);
      require(again.results.size() == reply.results.size());
      return true;
    }
    case MessageType::kSubmit: {
      std::vector<SubmittedRequest> requests;
      if (!parse(message, requests)) return false;
      std::vector<SubmitHead> heads;
      std::vector<const Payload*> payloads;
      for (const SubmittedRequest& request : requests) {
        touch(request.payload);
        heads.push_back(request.head);
        payloads.push_back(&request.payload);
      }
      std::vector<SubmittedRequest> again;
      pass_on(make_submit(heads, payloads), again);
      require(std::ranges::equal(again, requests, [](const SubmittedRequest& one, const SubmittedRequest& other) {
        return same(one.head.context, other.head.context) && same(one.head.traits, other.head.traits);
      }));
      return true;
    }
    case MessageType::kResults: {
      std::vector<EndedCall> calls;
      if (!parse(message, calls)) return false;
      for (const EndedCall& call : calls) {
        for (const ResultRange& range : call.ranges) touch(range.result);
      }
      std::vector<EndedCall> again;
      pass_on(make_results(calls), again);
      require(again.size() == calls.size());
      return true;
    }
    case MessageType::kQuery: {
      Query query;
      if (!parse(message, query)) return false;
      Query again;
      pass_on(make_query(message.id, query), again);
      require(again.kind == query.kind && again.change.batch_size == query.change.batch_size &&
              again.change.max_latency == query.change.max_latency && again.change.policy == query.change.policy &&
              again.change.slo == query.change.slo && again.limit == query.limit &&
              again.max_events == query.max_events);
      return true;
    }
    case MessageType::kQueryReply: {
      QueryReply reply;
      if (!parse(message, reply)) return false;
      QueryReply again;
      pass_on(make_query_reply(message.id, reply), again);
      require(again.yes == reply.yes && again.text == reply.text);
      return true;
    }
    default:
      return true;  // texts and opaque bytes
  }
}

}  // namespace

std::size_t play(std::span<const std::uint8_t> input) {
  auto [peer, socket] = socket_pair();
  const auto connection = Connection::make(std::move(socket));
  // A block that the input may release.
  Payload lent;
  lent.bytes = Bytes::copy_of("item");
  lent.ends = {4};
  lent.blocks.push_back(
      {.item = 0, .block = std::make_shared<const SharedBlock>(FileDescriptor(), 1, std::weak_ptr<BlockOwner>(), 0)});
  const RangeHead head{.items = 1};
  const PayloadRange range{.payload = &lent, .begin = 0, .count = 1};
  require(connection->send(make_batch(0, {}, {&head, 1}, {&range, 1})));

  std::size_t accepted = 0;
  constexpr std::size_t kHead = 4;
  while (input.size() >= kHead) {
    const std::size_t count = input[0] % 8U;
    const std::uint8_t kinds = input[1];
    const std::size_t size = std::min<std::size_t>(input[2] + 256U * input[3], input.size() - kHead);
    write_raw(peer.get(), input.subspan(kHead, size), size > 0 ? count : 0, kinds);
    input = input.subspan(kHead + size);
    // A single kNothing may only mean the end of one read.
    for (int nothing = 0; nothing < 2;) {
      InMessage message;
      const Received received = connection->receive(message);
      if (received == Received::kCorrupt || received == Received::kClosed) return accepted;
      if (received == Received::kNothing) {
        ++nothing;
      } else if (!pass_on(message)) {
        return accepted;
      } else {
        ++accepted;
        nothing = 0;
      }
    }
    if (!connection->flush()) return accepted;
  }
  return accepted;
}

}  // namespace service_streamer::ipc::fuzz
