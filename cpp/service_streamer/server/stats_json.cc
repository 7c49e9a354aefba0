#include "service_streamer/server/stats_json.h"

#include <array>
#include <charconv>
#include <cstdint>
#include <map>
#include <string_view>
#include <type_traits>
#include <utility>

#include "service_streamer/batching/stats_fields.h"

namespace service_streamer::ipc {
namespace {

std::string_view name_of(WorkerReport::State state) {
  switch (state) {
    case WorkerReport::State::kStarting:
      return "starting";
    case WorkerReport::State::kReady:
      return "ready";
    case WorkerReport::State::kRetiring:
      return "retiring";
  }
  return "unknown";
}

template <typename Visitor>
void describe(const WorkerReport& worker, Visitor& field) {
  field("id", worker.id);
  field("pid", worker.pid);
  field("state", name_of(worker.state));
  field("about", std::string_view(worker.about));
  field("batches", worker.batches);
  field("items", worker.items);
  field("decode", worker.decode);
  field("predict", worker.predict);
  field("encode", worker.encode);
  field("transport", worker.transport);
}

// Writes a JSON object, one member per call.
class JsonWriter {
 public:
  template <typename T>
  void operator()(std::string_view name, const T& value) {
    separate();
    write(name);
    text_ += ':';
    write(value);
  }

  std::string finish() && { return std::move(text_) + '}'; }

 private:
  void separate() {
    if (text_.back() != '{' && text_.back() != '[') text_ += ',';
  }

  template <typename T>
  void write(const T& value) {
    if constexpr (std::is_arithmetic_v<T>) {
      std::array<char, 32> digits;
      text_.append(digits.data(), std::to_chars(digits.begin(), digits.end(), value).ptr);
    } else {
      text_ += '{';
      describe(value, *this);
      text_ += '}';
    }
  }
  void write(Duration duration) { write(seconds(duration)); }
  void write(std::string_view value) {
    constexpr std::string_view kHex = "0123456789abcdef";
    text_ += '"';
    for (const char letter : value) {
      const auto code = static_cast<unsigned char>(letter);
      if (code < 0x20) {
        text_ += {'\\', 'u', '0', '0', kHex[code >> 4], kHex[code & 15]};
        continue;
      }
      if (letter == '"' || letter == '\\') text_ += '\\';
      text_ += letter;
    }
    text_ += '"';
  }
  template <typename Key, typename Value>
  void write(const std::map<Key, Value>& counts) {
    text_ += '{';
    for (const auto& [key, count] : counts) {
      if constexpr (std::is_arithmetic_v<Key>) {
        (*this)(std::to_string(key), count);
      } else {
        (*this)(key, count);
      }
    }
    text_ += '}';
  }
  void write(const std::vector<WorkerReport>& workers) {
    text_ += '[';
    for (const WorkerReport& worker : workers) {
      separate();
      write<WorkerReport>(worker);
    }
    text_ += ']';
  }

  std::string text_ = "{";
};

}  // namespace

std::string stats_json(const Engine& engine, std::uint64_t worker_restarts, std::size_t places,
                       const std::vector<WorkerReport>& workers) {
  JsonWriter json;
  describe(engine, json);
  json("worker_restarts", worker_restarts);
  json("places", places);
  json("worker_processes", workers);
  return std::move(json).finish();
}

}  // namespace service_streamer::ipc
