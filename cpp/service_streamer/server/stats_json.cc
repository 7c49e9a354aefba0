#include "service_streamer/server/stats_json.h"

#include <array>
#include <charconv>
#include <string_view>

namespace service_streamer::ipc {
namespace {

// Writes objects and arrays as they come; puts the commas.
class JsonWriter {
 public:
  std::string take() { return std::move(text_); }

  JsonWriter& key(std::string_view name) {
    string(name);
    text_ += ':';
    fresh_ = true;
    return *this;
  }
  void open(char bracket) {
    separate();
    text_ += bracket;
    fresh_ = true;
  }
  void close(char bracket) {
    text_ += bracket;
    fresh_ = false;
  }
  template <typename Number>
  void number(Number value) {
    separate();
    std::array<char, 32> digits;
    const auto end = std::to_chars(digits.begin(), digits.end(), value).ptr;
    text_.append(digits.begin(), end);
  }
  void string(std::string_view value) {
    separate();
    text_ += '"';
    for (const char letter : value) {
      if (letter == '"' || letter == '\\') {
        text_ += '\\';
        text_ += letter;
      } else if (static_cast<unsigned char>(letter) < 0x20) {
        constexpr std::string_view kHex = "0123456789abcdef";
        text_ += "\\u00";
        text_ += kHex[static_cast<unsigned char>(letter) >> 4];
        text_ += kHex[static_cast<unsigned char>(letter) & 15];
      } else {
        text_ += letter;
      }
    }
    text_ += '"';
  }

 private:
  void separate() {
    if (!fresh_) text_ += ',';
    fresh_ = false;
  }

  std::string text_;
  bool fresh_ = true;  // nothing that a comma would have to follow
};

double seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

void write(JsonWriter& json, std::string_view key, const DurationSummary& summary) {
  json.key(key).open('{');
  json.key("count").number(summary.count);
  json.key("mean").number(seconds(summary.mean));
  json.key("p50").number(seconds(summary.p50));
  json.key("p90").number(seconds(summary.p90));
  json.key("p99").number(seconds(summary.p99));
  json.key("max").number(seconds(summary.max));
  json.close('}');
}

void write(JsonWriter& json, const Counters& counters) {
  json.key("submitted").number(counters.submitted);
  json.key("completed").number(counters.completed);
  json.key("failed").number(counters.failed);
  json.key("cancelled").number(counters.cancelled);
  json.key("expired").number(counters.expired);
  json.key("rejected").number(counters.rejected);
  json.key("dropped").number(counters.dropped);
  json.key("isolated").number(counters.isolated);
  json.key("batches").number(counters.batches);
  json.key("items").number(counters.items);
  json.key("peak_requests").number(counters.peak_requests);
  json.key("batch_sizes").open('{');
  for (const auto& [size, count] : counters.batch_sizes) json.key(std::to_string(size)).number(count);
  json.close('}');
  json.key("close_reasons").open('{');
  for (std::size_t i = 0; i < counters.close_reasons.size(); ++i) {
    json.key(to_string(static_cast<CloseReason>(i))).number(counters.close_reasons[i]);
  }
  json.close('}');
}

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

void write(JsonWriter& json, const WorkerReport& worker) {
  json.open('{');
  json.key("id").number(worker.id);
  json.key("pid").number(worker.pid);
  json.key("state").string(name_of(worker.state));
  json.key("about").string(worker.about);
  json.key("batches").number(worker.batches);
  json.key("items").number(worker.items);
  write(json, "decode", worker.decode);
  write(json, "predict", worker.predict);
  write(json, "encode", worker.encode);
  write(json, "transport", worker.transport);
  json.close('}');
}

}  // namespace

std::string stats_json(const Engine& engine, const std::vector<WorkerReport>& workers) {
  const EngineStats stats = engine.stats();
  const EngineOptions options = engine.options();
  JsonWriter json;
  json.open('{');
  json.key("batch_size").number(options.batch_size);
  json.key("max_latency").number(seconds(options.max_latency));
  json.key("policy").string(to_string(options.policy));
  json.key("max_queue").number(options.max_queue);
  json.key("workers").number(stats.workers);
  json.key("idle_workers").number(stats.idle_workers);
  json.key("queued_items").number(stats.queued_items);
  json.key("queued_requests").number(stats.queued_requests);
  json.key("waiting_requests").number(stats.waiting_requests);
  json.key("running_items").number(stats.running_items);
  json.key("running_batches").number(stats.running_batches);
  write(json, stats.counters);
  write(json, "queue_time", stats.queue_time);
  write(json, "service_time", stats.service_time);
  write(json, "delivery_time", stats.delivery_time);
  json.key("worker_processes").open('[');
  for (const WorkerReport& worker : workers) write(json, worker);
  json.close(']');
  json.close('}');
  return json.take();
}

}  // namespace service_streamer::ipc
