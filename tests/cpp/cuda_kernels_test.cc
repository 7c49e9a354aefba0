// The kernels against their twins on the CPU: skipped where there is no GPU, failed where SERVICE_STREAMER_EXPECT_CUDA=1 says that
// there is one.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
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

// Bytes on the device.
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
    must(cudaMemcpy(to.data(), data_, bytes, cudaMemcpyDeviceToHost));  // after what the stream was given
    return to;
  }

 private:
  void* data_ = nullptr;
};

TEST_F(CudaKernels, GatherAsTheCpuDoes) {
  std::mt19937 random(3);
  for (const Dtype dtype : {Dtype::kUint8, Dtype::kFloat16, Dtype::kFloat32, Dtype::kInt64, Dtype::kComplex128}) {
    for (const PadSide side : {PadSide::kRight, PadSide::kLeft}) {
      const std::size_t size = native::size_of(dtype);
      const Shape sizes{5, 7, 11};
      std::vector<std::vector<std::byte>> rows;
      std::vector<std::unique_ptr<OnDevice>> there;
      std::vector<cuda::GatherRow> table;
      std::vector<std::byte> wanted(static_cast<std::size_t>(5 * 7 * 11) * size);
      const native::Number pad = native::one_of(dtype);
      for (std::size_t row = 0; row < 5; ++row) {
        const auto height = static_cast<std::int64_t>(random() % 8);
        const auto width = static_cast<std::int64_t>(random() % 12);
        std::vector<std::byte>& bytes = rows.emplace_back(static_cast<std::size_t>(height * width) * size);
        for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
        TensorView view{.data = bytes.data(), .dtype = dtype, .sizes = {height, width}, .strides = {}};
        const auto number = static_cast<std::int64_t>(size);
        // Every other one is transposed in memory.
        view.strides = row % 2 == 0 ? Shape{width * number, number} : Shape{number, height * number};
        native::copy_padded(view, wanted.data() + row * 77 * size, {7, 11}, side, pad);
        there.push_back(std::make_unique<OnDevice>(bytes.data(), bytes.size()));
        view.data = there.back()->data();
        table.push_back(cuda::gather_row_of(view));
      }
      const OnDevice table_there(table.data(), table.size() * sizeof(cuda::GatherRow));
      const OnDevice to(wanted.size());
      cuda::gather_padded({.rows = reinterpret_cast<const cuda::GatherRow*>(table_there.data()),
                           .to = to.data(),
                           .number_size = size,
                           .sizes = sizes,
                           .side = side,
                           .pad = pad},
                          nullptr);
      EXPECT_EQ(to.read(wanted.size()), wanted) << native::to_string(dtype);
    }
  }
}

TEST_F(CudaKernels, NormaliseImagesAsTheCpuDoes) {
  std::mt19937 random(5);
  std::vector<std::uint8_t> from(3 * 17 * 19 * 3);
  for (std::uint8_t& byte : from) byte = static_cast<std::uint8_t>(random());
  cuda::Images images{.from = from.data(), .count = 3, .rows = 17, .columns = 19, .channels = 3};
  images.scale = {1.0F / 57, 1.0F / 58, 1.0F / 59, 0};
  images.shift = {-2.1F, -2.0F, -1.8F, 0};
  std::vector<float> wanted(from.size());
  images.to = wanted.data();
  cuda::normalize_images(images);

  const OnDevice from_there(from.data(), from.size());
  const OnDevice to(wanted.size() * sizeof(float));
  images.from = reinterpret_cast<const std::uint8_t*>(from_there.data());
  images.to = to.data();
  cuda::normalize_images_on_device(images, nullptr);
  const std::vector<std::byte> bytes = to.read(wanted.size() * sizeof(float));
  std::vector<float> found(wanted.size());
  std::memcpy(found.data(), bytes.data(), bytes.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(found[i], wanted[i], 1e-6);
}

}  // namespace
}  // namespace service_streamer::support
