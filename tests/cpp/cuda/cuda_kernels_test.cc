// Compares the kernels with their CPU implementations. Built twice: for a GPU that the CPU emulates
// (support/cuda_on_cpu), and by nvcc if there is one. Without a GPU, the latter is skipped, or fails with
// SERVICE_STREAMER_EXPECT_CUDA=1.

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "service_streamer/cuda/gather.h"
#include "service_streamer/cuda/images.h"

namespace service_streamer::support {
namespace {

using native::Dtype;
using native::PadSide;
using native::Shape;
using native::TensorView;

class CudaKernels : public testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    const bool any = cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
    const char* expected = std::getenv("SERVICE_STREAMER_EXPECT_CUDA");
    if (any) return;
    if (expected != nullptr && std::string(expected) == "1") GTEST_FAIL() << "there is no GPU, and there should be one";
    GTEST_SKIP() << "there is no GPU";
  }
};

void must(cudaError_t error) {
  ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(error);
}

// Memory on the device.
class OnDevice {
 public:
  explicit OnDevice(std::size_t bytes) { must(cudaMalloc(&data_, std::max<std::size_t>(bytes, 1))); }
  OnDevice(const void* from, std::size_t bytes) : OnDevice(bytes) {
    must(cudaMemcpy(data_, from, bytes, cudaMemcpyHostToDevice));
  }
  ~OnDevice() { cudaFree(data_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  std::vector<std::byte> read(std::size_t bytes) const {
    std::vector<std::byte> to(bytes);
    must(cudaMemcpy(to.data(), data_, bytes, cudaMemcpyDeviceToHost));  // after the work of the stream
    return to;
  }

 private:
  void* data_ = nullptr;
};

// A batch of rows in separate device memory, and the result of the CPU.
class Rows {
 public:
  Rows(Dtype dtype, const Shape& padded, PadSide side) : dtype_(dtype), padded_(padded), side_(side) {}

  // A row of random elements. `order` lists the dimensions from the outermost in memory to the innermost.
  void add(const Shape& sizes, std::span<const std::size_t> order) {
    auto bytes = static_cast<std::int64_t>(native::size_of(dtype_));
    Shape strides = sizes;
    for (std::size_t i = sizes.rank(); i-- > 0;) {
      strides[order[i]] = bytes;
      bytes *= sizes[order[i]];
    }
    add(sizes, strides, static_cast<std::size_t>(bytes));
  }

  // A row with any strides in memory of `bytes` bytes. The first element is at `begin`.
  void add(const Shape& sizes, const Shape& strides, std::size_t bytes, std::size_t begin = 0) {
    std::vector<std::byte> numbers(bytes);
    for (std::byte& byte : numbers) byte = static_cast<std::byte>(random_());
    TensorView view{.data = numbers.data() + begin, .dtype = dtype_, .sizes = sizes, .strides = strides};
    const std::size_t whole = wanted_.size();
    wanted_.resize(whole + row_bytes());
    native::copy_padded(view, wanted_.data() + whole, padded_, side_, native::scalar_one(dtype_));
    there_.push_back(std::make_unique<OnDevice>(numbers.data(), numbers.size()));
    view.data = there_.back()->data() + begin;
    views_.push_back(view);
  }

  void add(const Shape& sizes) {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < sizes.rank(); ++i) order.push_back(i);
    add(sizes, order);
  }

  // Returns the arguments of the kernel.
  cuda::Gather expect_gathered() {
    const OnDevice to(wanted_.size());
    Shape sizes{static_cast<std::int64_t>(views_.size())};
    for (const std::int64_t size : padded_.values()) sizes.push_back(size);
    std::vector<cuda::GatherRow> described(views_.size());
    cuda::Gather gather = cuda::describe_gather(views_, {.data = to.data(), .dtype = dtype_, .sizes = sizes}, side_,
                                                native::scalar_one(dtype_), described);
    const OnDevice described_there(described.data(), described.size() * sizeof(cuda::GatherRow));
    gather.rows = reinterpret_cast<const cuda::GatherRow*>(described_there.data());
    cuda::gather_padded(gather, nullptr);
    EXPECT_EQ(to.read(wanted_.size()), wanted_) << native::to_string(dtype_) << " " << native::to_string(padded_);
    return gather;
  }

 private:
  std::size_t row_bytes() const {
    std::size_t bytes = native::size_of(dtype_);
    for (const std::int64_t size : padded_.values()) bytes *= static_cast<std::size_t>(size);
    return bytes;
  }

  const Dtype dtype_;
  const Shape padded_;
  const PadSide side_;
  std::mt19937 random_{3};
  std::vector<std::byte> wanted_;
  std::vector<std::unique_ptr<OnDevice>> there_;
  std::vector<TensorView> views_;
};

constexpr PadSide kSides[] = {PadSide::kRight, PadSide::kLeft};
constexpr Dtype kDtypes[] = {Dtype::kUint8, Dtype::kFloat16, Dtype::kFloat32, Dtype::kInt64, Dtype::kComplex128};

TEST_F(CudaKernels, GatherRowsOfAnySizesAndOrder) {
  std::mt19937 random(3);
  for (const Dtype dtype : kDtypes) {
    for (const PadSide side : kSides) {
      for (std::size_t rank = 0; rank <= 4; ++rank) {
        Shape padded;
        for (std::size_t i = 0; i < rank; ++i) padded.push_back(static_cast<std::int64_t>(1 + random() % 9));
        Rows rows(dtype, padded, side);
        for (int row = 0; row < 6; ++row) {
          Shape sizes = padded;
          std::vector<std::size_t> order;
          for (std::size_t i = 0; i < rank; ++i) {
            if (random() % 2 == 0) sizes[i] = static_cast<std::int64_t>(random() % (padded[i] + 1));
            order.push_back(i);
          }
          if (random() % 2 == 0) std::ranges::shuffle(order, random);
          rows.add(sizes, order);
        }
        rows.expect_gathered();
      }
    }
  }
}

TEST_F(CudaKernels, GatherContiguousRowsWithoutDivision) {
  for (const Dtype dtype : kDtypes) {
    for (const PadSide side : kSides) {
      Rows rows(dtype, {7, 4, 8}, side);
      for (const std::int64_t size : {7, 0, 3, 1}) rows.add({size, 4, 8});
      const cuda::Gather gather = rows.expect_gathered();
      EXPECT_EQ(gather.element_size, 16);
      EXPECT_EQ(gather.sizes, (Shape{7 * 4 * 8 * static_cast<std::int64_t>(native::size_of(dtype)) / 16}));
    }
  }
}

TEST_F(CudaKernels, GatherOnlyAlignedRowsInLargerElements) {
  Rows sequences(Dtype::kFloat16, {12}, PadSide::kLeft);
  for (const std::int64_t size : {12, 4, 6}) sequences.add({size});
  EXPECT_EQ(sequences.expect_gathered().element_size, 4);

  Rows shifted(Dtype::kUint8, {32}, PadSide::kRight);
  shifted.add({32}, {1}, 32);
  shifted.add({32}, {1}, 34, 2);
  EXPECT_EQ(shifted.expect_gathered().element_size, 2);
}

TEST_F(CudaKernels, GatherRowsOfAnyStrides) {
  for (const PadSide side : kSides) {
    Rows rows(Dtype::kInt32, {4, 4}, side);
    rows.add({4, 4}, {16, 4}, 64);       // contiguous
    rows.add({4, 4}, {0, 4}, 16);        // one line four times
    rows.add({4, 4}, {0, 0}, 4);         // one element
    rows.add({3, 2}, {32, 8}, 128, 8);   // part of a larger tensor
    rows.add({4, 4}, {-16, 4}, 64, 48);  // upside down
    rows.add({1, 4}, {12345, 4}, 16);    // the stride of a size of 1 is not used
    rows.add({4, 1}, {16, 12345}, 64);
    rows.add({0, 4}, {16, 4}, 0);
    rows.expect_gathered();
  }
}

TEST_F(CudaKernels, GatherLargeRowsAndMany) {
  Rows large(Dtype::kUint8, {3, 70001}, PadSide::kRight);  // more than the threads of a block, and not divisible by 16
  for (const std::int64_t size : {70001, 69999}) large.add({3, size});
  large.expect_gathered();

  Rows many(Dtype::kInt16, {1}, PadSide::kRight);  // more than the blocks in one direction
  for (int row = 0; row < 66000; ++row) many.add({row % 2});
  many.expect_gathered();
}

template <typename Element>
std::vector<Element> normalised(cuda::Images images, const std::vector<std::uint8_t>& from, bool on_device) {
  std::vector<Element> to(from.size());
  images.half = sizeof(Element) == 2;
  if (on_device) {
    const OnDevice from_there(from.data(), from.size());
    const OnDevice to_there(to.size() * sizeof(Element));
    images.from = reinterpret_cast<const std::uint8_t*>(from_there.data());
    images.to = to_there.data();
    cuda::normalize_images_on_device(images, nullptr);
    const std::vector<std::byte> bytes = to_there.read(to.size() * sizeof(Element));
    std::memcpy(to.data(), bytes.data(), bytes.size());
  } else {
    images.from = from.data();
    images.to = to.data();
    cuda::normalize_images(images);
  }
  return to;
}

TEST_F(CudaKernels, NormalizeImagesLikeTheCpu) {
  std::mt19937 random(5);
  for (const std::int64_t channels : {1, 3, 4}) {
    cuda::Images images{.count = 3, .rows = 17, .columns = 19, .channels = channels};
    images.scale = {1.0F / 57, 1.0F / 58, 1.0F / 59, 1.0F / 60};
    images.shift = {-2.1F, -2.0F, -1.8F, -1.7F};
    std::vector<std::uint8_t> from(static_cast<std::size_t>(3 * 17 * 19 * channels));
    for (std::uint8_t& byte : from) byte = static_cast<std::uint8_t>(random());
    const auto wanted = normalised<float>(images, from, false);
    const auto found = normalised<float>(images, from, true);
    for (std::size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(found[i], wanted[i], 1e-6);
  }
}

// The kernel rounds multiplication and addition once, so its result may be the neighbouring half.
TEST_F(CudaKernels, NormalizeImagesToHalvesLikeTheCpu) {
  std::vector<std::uint8_t> from(256);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::uint8_t>(i);
  for (const float scale : {3e-10F, 3e-7F, 1e-5F, 0.013F, -1.7F, 300.0F, 1e30F}) {
    cuda::Images images{.count = 1, .rows = 1, .columns = 256, .channels = 1};
    images.scale[0] = scale;
    const auto wanted = normalised<std::uint16_t>(images, from, false);
    const auto found = normalised<std::uint16_t>(images, from, true);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      ASSERT_LE(std::abs(static_cast<int>(found[i]) - static_cast<int>(wanted[i])), 1) << scale << " * " << i;
    }
  }
}

}  // namespace
}  // namespace service_streamer::support
