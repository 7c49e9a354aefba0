#pragma once

// A model of sequences for FakeDevice.

#include <atomic>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "service_streamer/native/pipeline.h"
#include "support/device.h"

namespace service_streamer::support {

using Numbers = std::vector<std::int64_t>;

// Sequences of int64, padded on the right with zeros.
struct Sequences {
  Sequences() {
    signature.symbols = {{.name = "sequence", .min = 1, .max = 100}};
    signature.inputs = {{.name = "ids", .dtype = native::Dtype::kInt64, .dimensions = {{.symbol = 0, .size = 0}}}};
    options.pad = true;
    options.pad_values = {native::Scalar{}};
  }

  native::Signature signature;
  native::CollateOptions options;
};

// Some sequences, and the model's work on them: it adds 1, to the padding also.
class Group final : public native::DeviceRun {
 public:
  Group(Streams& streams, std::vector<Numbers> sequences, const native::Event* ready = nullptr)
      : streams_(streams), sequences_(std::move(sequences)) {
    for (const Numbers& sequence : sequences_) {
      const auto length = static_cast<std::int64_t>(sequence.size());
      extents_.push_back(length);
      views_.push_back({.data = reinterpret_cast<const std::byte*>(sequence.data()),
                        .dtype = native::Dtype::kInt64,
                        .sizes = {length},
                        .strides = {static_cast<std::int64_t>(sizeof(std::int64_t))}});
    }
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
      items.push_back({.tensors = &views_[i], .extents = &extents_[i], .ready = ready});
    }
  }

  std::vector<Bytes> compute(std::span<const native::Collator::Tensor> inputs) override {
    if (raises) throw std::runtime_error("no");
    const auto* input = reinterpret_cast<const std::int64_t*>(inputs[0].data);
    on_device.resize(static_cast<std::size_t>(inputs[0].sizes[0] * inputs[0].sizes[1]));
    streams_.give(Stream::kCompute, [this, input] {
      computed = true;
      for (std::size_t i = 0; i < on_device.size(); ++i) on_device[i] = input[i] + 1;
    });
    return {std::as_bytes(std::span(on_device))};
  }

  void collect(std::span<const Bytes> outputs) override {
    ++collected;
    for (const Bytes& output : outputs) {
      numbers.resize(output.size() / sizeof(std::int64_t));
      std::memcpy(numbers.data(), output.data(), output.size());
    }
  }

  std::vector<native::Collator::Item> items;
  bool raises = false;
  std::atomic<bool> computed{false};
  Numbers on_device;
  Numbers numbers;  // that came back
  int collected = 0;

 private:
  Streams& streams_;
  std::vector<Numbers> sequences_;
  std::vector<native::TensorView> views_;
  Numbers extents_;
};

}  // namespace service_streamer::support
