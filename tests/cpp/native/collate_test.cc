// Collating items: stacked, padded on either side, rounded up to buckets, with mask and lengths.

#include "service_streamer/native/collate.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <new>
#include <numeric>
#include <utility>
#include <vector>

namespace service_streamer::native {
namespace {

constexpr Dtype kInt64 = Dtype::kInt64;

Scalar number(std::int64_t value) {
  Scalar bytes{};
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

// A view of a contiguous int64 tensor. The values must outlive the view.
TensorView view_of(const std::vector<std::int64_t>& numbers, const Shape& sizes) {
  TensorView view{
      .data = reinterpret_cast<const std::byte*>(numbers.data()), .dtype = kInt64, .sizes = sizes, .strides = sizes};
  std::int64_t stride = sizeof(std::int64_t);
  for (std::size_t i = sizes.rank(); i-- > 0;) {
    view.strides[i] = stride;
    stride *= sizes[i];
  }
  return view;
}

std::vector<std::int64_t> numbers_in(const Collator::Tensor& tensor) {
  std::size_t count = 1;
  for (const std::int64_t size : tensor.sizes.values()) count *= static_cast<std::size_t>(size);
  std::vector<std::int64_t> numbers(count);
  if (count > 0) std::memcpy(numbers.data(), tensor.data, count * sizeof(std::int64_t));
  return numbers;
}

using Numbers = std::vector<std::int64_t>;

std::vector<std::int64_t> padded(const TensorView& view, const Shape& sizes, PadSide side, std::int64_t pad) {
  std::size_t count = 1;
  for (const std::int64_t size : sizes.values()) count *= static_cast<std::size_t>(size);
  Numbers to(count, -1);
  copy_padded(view, reinterpret_cast<std::byte*>(to.data()), sizes, side, number(pad));
  return to;
}

TEST(CopyPadded, CopiesTensorsThatNeedNoPadding) {
  const Numbers numbers{1, 2, 3, 4, 5, 6};
  EXPECT_EQ(padded(view_of(numbers, {2, 3}), {2, 3}, PadSide::kRight, 0), numbers);
  EXPECT_EQ(padded(view_of({7}, {}), {}, PadSide::kRight, 0), Numbers{7});
}

TEST(CopyPadded, PadsOnTheRequestedSide) {
  const Numbers numbers{1, 2, 3};
  EXPECT_EQ(padded(view_of(numbers, {3}), {5}, PadSide::kRight, 0), (Numbers{1, 2, 3, 0, 0}));
  EXPECT_EQ(padded(view_of(numbers, {3}), {5}, PadSide::kLeft, 9), (Numbers{9, 9, 1, 2, 3}));
}

TEST(CopyPadded, PadsSeveralDimensions) {
  const Numbers numbers{1, 2, 3, 4};
  const TensorView view = view_of(numbers, {2, 2});
  EXPECT_EQ(padded(view, {3, 3}, PadSide::kRight, 0), (Numbers{1, 2, 0, 3, 4, 0, 0, 0, 0}));
  EXPECT_EQ(padded(view, {3, 3}, PadSide::kLeft, 7), (Numbers{7, 7, 7, 7, 1, 2, 7, 3, 4}));
  EXPECT_EQ(padded(view, {3, 2}, PadSide::kRight, 0), (Numbers{1, 2, 3, 4, 0, 0}));
}

TEST(CopyPadded, ReadsStrides) {
  const Numbers numbers{1, 2, 3, 4, 5, 6};
  TensorView transposed = view_of(numbers, {2, 3});
  std::swap(transposed.sizes[0], transposed.sizes[1]);
  std::swap(transposed.strides[0], transposed.strides[1]);
  EXPECT_EQ(padded(transposed, {3, 2}, PadSide::kRight, 0), (Numbers{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(padded(transposed, {3, 3}, PadSide::kRight, 0), (Numbers{1, 4, 0, 2, 5, 0, 3, 6, 0}));

  TensorView reversed = view_of(numbers, {6});
  reversed.data += 5 * sizeof(std::int64_t);
  reversed.strides[0] = -reversed.strides[0];
  EXPECT_EQ(padded(reversed, {6}, PadSide::kRight, 0), (Numbers{6, 5, 4, 3, 2, 1}));

  TensorView repeated = view_of(numbers, {2, 3});
  repeated.strides[0] = 0;
  EXPECT_EQ(padded(repeated, {2, 3}, PadSide::kRight, 0), (Numbers{1, 2, 3, 1, 2, 3}));
}

TEST(CopyPadded, AnEmptyTensorBecomesPadding) {
  EXPECT_EQ(padded(view_of({}, {0}), {3}, PadSide::kRight, 5), (Numbers{5, 5, 5}));
  EXPECT_EQ(padded(view_of({}, {0}), {0}, PadSide::kRight, 5), Numbers{});
  EXPECT_EQ(padded(view_of({}, {2, 0}), {2, 2}, PadSide::kLeft, 5), (Numbers{5, 5, 5, 5}));
}

TEST(CopyPadded, FillsWithElementsOfEverySize) {
  for (const Dtype dtype : {Dtype::kUint8, Dtype::kFloat16, Dtype::kFloat32, Dtype::kFloat64, Dtype::kComplex128}) {
    const std::size_t size = size_of(dtype);
    std::vector<std::byte> to(7 * size, std::byte{0xAB});
    const TensorView nothing{.data = nullptr, .dtype = dtype, .sizes = {0}, .strides = {0}};
    const Scalar one = scalar_one(dtype);
    copy_padded(nothing, to.data(), {7}, PadSide::kRight, one);
    for (std::size_t i = 0; i < 7; ++i) EXPECT_EQ(std::memcmp(to.data() + i * size, one.data(), size), 0);
  }
}

std::size_t bytes_for(const Shape& sizes) {
  return bytes_of({.data = nullptr, .dtype = kInt64, .sizes = sizes});
}

TEST(BytesOf, SizesLargerThanAnyMemoryThrow) {
  constexpr std::int64_t k30 = std::int64_t{1} << 30;
  EXPECT_EQ(bytes_for({k30, 4, k30 / 16}), std::size_t{1} << 61);
  EXPECT_THROW(bytes_for({1, 2 * k30, k30}), std::bad_alloc) << "2^64, which would be counted as 0";
  EXPECT_THROW(bytes_for({3, k30, 4 * k30}), std::bad_alloc) << "more than that";
  EXPECT_THROW(bytes_for({1, k30, k30}), std::bad_alloc) << "2^63, further than pointers differ";
  EXPECT_THROW(bytes_for({2 * k30, k30}), std::bad_alloc) << "a row would fit";
  EXPECT_EQ(bytes_for({0, k30}), 0U);
}

// A model of sequences: ids and, if the test generates them, a mask and lengths.
class Sequences : public testing::Test {
 protected:
  Sequences() {
    const Dimension sequence{.symbol = 0, .size = 0};
    signature.symbols = {{.name = "sequence", .min = 1, .max = 10}};
    signature.inputs = {{.name = "ids", .dtype = kInt64, .dimensions = {sequence}},
                        {.name = "mask", .dtype = kInt64, .dimensions = {sequence}},
                        {.name = "lengths", .dtype = kInt64, .dimensions = {}}};
    options.pad = true;
    options.pad_values = {number(0), number(0), number(0)};
    options.mask = 1;
    options.lengths = 2;
  }

  // Items with these lengths, whose elements count 1, 2, 3, …
  void make_items(const Numbers& lengths) {
    lengths_ = lengths;
    numbers_.resize(lengths.size());
    views_.clear();
    items.clear();
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      numbers_[i].resize(static_cast<std::size_t>(lengths[i]));
      std::iota(numbers_[i].begin(), numbers_[i].end(), 1);
      views_.push_back(view_of(numbers_[i], {lengths[i]}));
    }
    for (std::size_t i = 0; i < lengths.size(); ++i) items.push_back({.tensors = &views_[i], .extents = &lengths_[i]});
  }

  Signature signature;
  CollateOptions options;
  std::vector<Collator::Item> items;

 private:
  Numbers lengths_;
  std::vector<Numbers> numbers_;
  std::vector<TensorView> views_;
};

TEST_F(Sequences, ArePaddedToTheLongestWithMaskAndLengths) {
  Collator collator(signature, options);
  make_items({2, 3, 1});
  const auto tensors = collator.collate(items);
  EXPECT_EQ(to_string(tensors[0].sizes), "(3, 3)");
  EXPECT_EQ(numbers_in(tensors[0]), (Numbers{1, 2, 0, 1, 2, 3, 1, 0, 0}));
  EXPECT_EQ(numbers_in(tensors[1]), (Numbers{1, 1, 0, 1, 1, 1, 1, 0, 0}));
  EXPECT_EQ(numbers_in(tensors[2]), (Numbers{2, 3, 1}));
  EXPECT_EQ(collator.extents()[0], 3);
}

TEST_F(Sequences, ArePaddedOnTheLeft) {
  options.side = PadSide::kLeft;
  options.pad_values[0] = number(8);
  Collator collator(signature, options);
  make_items({1, 3});
  const auto tensors = collator.collate(items);
  EXPECT_EQ(numbers_in(tensors[0]), (Numbers{8, 8, 1, 1, 2, 3}));
  EXPECT_EQ(numbers_in(tensors[1]), (Numbers{0, 0, 1, 1, 1, 1}));
}

TEST_F(Sequences, AreRoundedUpToBucketsButNotBeyondTheModel) {
  options.pad_to = {4, 16};
  Collator collator(signature, options);
  make_items({2, 3});
  EXPECT_EQ(to_string(collator.collate(items)[0].sizes), "(2, 4)");
  make_items({5});
  EXPECT_EQ(to_string(collator.collate(items)[0].sizes), "(1, 10)") << "the model takes no 16";
}

TEST_F(Sequences, AreAtLeastAsLongAsTheModelNeeds) {
  signature.symbols[0].min = 4;
  Collator collator(signature, options);
  make_items({2});
  EXPECT_EQ(numbers_in(collator.collate(items)[0]), (Numbers{1, 2, 0, 0}));
}

TEST_F(Sequences, TheLastItemFillsTheBatch) {
  options.batch_sizes = {1, 4};
  Collator collator(signature, options);
  make_items({1, 2});
  const auto tensors = collator.collate(items);
  EXPECT_EQ(numbers_in(tensors[0]), (Numbers{1, 0, 1, 2, 1, 2, 1, 2}));
  EXPECT_EQ(numbers_in(tensors[1]), (Numbers{1, 0, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(numbers_in(tensors[2]), (Numbers{1, 2, 2, 2}));
}

TEST_F(Sequences, EmptyOnesBecomePadding) {
  signature.symbols[0].min = 0;
  Collator collator(signature, options);
  make_items({0, 2});
  const auto tensors = collator.collate(items);
  EXPECT_EQ(numbers_in(tensors[0]), (Numbers{0, 0, 1, 2}));
  EXPECT_EQ(numbers_in(tensors[1]), (Numbers{0, 0, 1, 1}));
  make_items({0});
  EXPECT_EQ(numbers_in(collator.collate(items)[0]), Numbers{});
}

TEST_F(Sequences, MustHaveOneShapeIfNothingIsPadded) {
  make_items({2, 3, 2});
  EXPECT_TRUE(Collator(signature, options).fit_together(items[0], items[1]));
  options.pad = false;
  const Collator stacks(signature, options);
  EXPECT_FALSE(stacks.fit_together(items[0], items[1]));
  EXPECT_TRUE(stacks.fit_together(items[0], items[2]));
}

TEST_F(Sequences, AreMadeInMemoryOfTheCaller) {
  options.batch_sizes = {4};
  Collator collator(signature, options);
  make_items({2, 3});
  std::vector<Numbers> memory;
  for (Collator::Tensor& tensor : collator.arrange(items)) {
    EXPECT_EQ(tensor.data, nullptr);
    Numbers& own = memory.emplace_back(bytes_of(tensor) / sizeof(std::int64_t), -1);
    tensor.data = reinterpret_cast<std::byte*>(own.data());
  }
  collator.fill(items);
  EXPECT_EQ(memory[0], (Numbers{1, 2, 0, 1, 2, 3, 1, 2, 3, 1, 2, 3}));
  EXPECT_EQ(memory[1], (Numbers{1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(memory[2], (Numbers{2, 3, 3, 3}));
  EXPECT_FALSE(collator.holds(memory[0].data()));
}

// A view with a stride of 0 has any length without needing memory.
TEST_F(Sequences, TooLongForAnyMemoryLeaveTheCollatorUsable) {
  signature.symbols[0].max = INT64_MAX;
  Collator collator(signature, options);
  make_items({2, 1});
  const std::int64_t number_of_1 = 1;
  for (const int power : {61, 60, 59}) {
    const std::int64_t length = std::int64_t{1} << power;
    const TensorView repeated{
        .data = reinterpret_cast<const std::byte*>(&number_of_1), .dtype = kInt64, .sizes = {length}, .strides = {0}};
    const std::vector<Collator::Item> with_short_ones{
        items[0], {.tensors = &repeated, .extents = &length}, items[1], items[0]};
    EXPECT_THROW(collator.collate(with_short_ones), std::bad_alloc) << "2^" << power;
    EXPECT_EQ(numbers_in(collator.collate(items)[0]), (Numbers{1, 2, 1, 0}));
  }
}

TEST_F(Sequences, BatchesReuseTheSameMemory) {
  Collator collator(signature, options);
  make_items({8, 8, 8});
  const std::byte* const first = collator.collate(items)[0].data;
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % Staging::kAlignment, 0U);
  EXPECT_TRUE(collator.holds(first + 8));
  EXPECT_FALSE(collator.holds(&first));
  make_items({1, 3});
  EXPECT_EQ(collator.collate(items)[0].data, first);
  EXPECT_EQ(numbers_in(collator.collate(items)[0]), (Numbers{1, 0, 0, 1, 2, 3})) << "nothing is left of the last one";
}

}  // namespace
}  // namespace service_streamer::native
