// The check of items against the signature of a model.

#include "service_streamer/native/signature.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace service_streamer::native {
namespace {

class CheckTensor : public testing::Test {
 protected:
  CheckTensor() {
    signature.symbols = {{.name = "sequence", .min = 2, .max = 9}};
    signature.inputs = {{.name = "ids",
                         .dtype = Dtype::kInt64,
                         .dimensions = {{.symbol = 0, .size = 0}, {.symbol = Dimension::kFixed, .size = 3}}}};
  }

  std::optional<ItemMismatch> check(const TensorView& tensor, bool may_grow = false) {
    return check_tensor(signature, signature.inputs[0], tensor, may_grow, extents);
  }

  static TensorView tensor(const Shape& sizes, Dtype dtype = Dtype::kInt64) {
    return {.data = nullptr, .dtype = dtype, .sizes = sizes, .strides = sizes};
  }

  Signature signature;
  std::vector<std::int64_t> extents{-1};
};

TEST_F(CheckTensor, StoresTheSizesOfSymbols) {
  EXPECT_FALSE(check(tensor({5, 3})));
  EXPECT_EQ(extents[0], 5);
}

TEST_F(CheckTensor, NamesTheActualAndTheExpectedValue) {
  const auto dtype = check(tensor({5, 3}, Dtype::kInt32));
  ASSERT_TRUE(dtype);
  EXPECT_TRUE(dtype->wrong_type);
  EXPECT_EQ(dtype->message, "input 'ids' of an item is int32, the model wants int64");

  const auto rank = check(tensor({1, 5, 3}));
  ASSERT_TRUE(rank);
  EXPECT_TRUE(rank->wrong_type);
  EXPECT_EQ(
      rank->message,
      "input 'ids' of an item has the shape (1, 5, 3), the model wants (sequence, 3) (items have no batch dimension)");

  const auto size = check(tensor({5, 4}));
  ASSERT_TRUE(size);
  EXPECT_FALSE(size->wrong_type);
  EXPECT_EQ(size->message, "input 'ids' of an item has the shape (5, 4), the model wants (sequence, 3)");
}

TEST_F(CheckTensor, RefusesSizesOutOfRange) {
  const auto refused = check(tensor({10, 3}));
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->message,
            "input 'ids' of an item has the shape (10, 3), the model wants (sequence, 3) with sequence of 2 to 9");
  EXPECT_TRUE(check(tensor({1, 3})));
}

TEST_F(CheckTensor, AcceptsShorterSizesIfTheyArePadded) {
  EXPECT_FALSE(check(tensor({1, 3}), true));
  extents = {-1};
  EXPECT_TRUE(check(tensor({0, 3}), true)) << "of nothing no model makes sense that does not say so";
  signature.symbols[0].min = 0;
  EXPECT_FALSE(check(tensor({0, 3}), true));
}

TEST_F(CheckTensor, RequiresTheSameSizeInAllInputs) {
  EXPECT_FALSE(check(tensor({4, 3})));
  const auto refused = check(tensor({5, 3}));
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->message,
            "input 'ids' of an item has the shape (5, 3), the model wants (sequence, 3), where sequence is 4 in "
            "another input");
}

TEST(Dtype, HasANameAndASize) {
  for (const char* name : {"bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32",
                           "float64", "complex64", "complex128"}) {
    Dtype dtype{};
    ASSERT_TRUE(from_string(name, dtype));
    EXPECT_STREQ(to_string(dtype), name);
  }
  EXPECT_EQ(size_of(Dtype::kBfloat16), 2U);
  EXPECT_EQ(size_of(Dtype::kComplex128), 16U);
  Dtype dtype{};
  EXPECT_FALSE(from_string("float8", dtype));
}

template <typename Number>
std::optional<ItemMismatch> check_numbers(std::vector<Number> numbers, Dtype dtype, std::int64_t min,
                                          std::int64_t max) {
  TensorSpec input;
  input.name = "ids";
  input.min_value = min;
  input.max_value = max;
  return check_values(input, {.data = reinterpret_cast<const std::byte*>(numbers.data()),
                              .dtype = dtype,
                              .sizes = {static_cast<std::int64_t>(numbers.size())},
                              .strides = {sizeof(Number)}});
}

TEST(CheckValues, AcceptsOnlyNumbersInTheRange) {
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  for (const auto& [min, max] : {std::pair<std::int64_t, std::int64_t>{0, 999}, {-7, 6}, {5, 10}, {-9, -2}}) {
    EXPECT_FALSE(check_numbers<std::int64_t>({min, max, min + 1}, Dtype::kInt64, min, max));
    EXPECT_FALSE(check_numbers<std::int64_t>({}, Dtype::kInt64, min, max));
    for (const std::int64_t wrong : {min - 1, max + 1, kLeast, kMost, kLeast + 6, kMost - 6}) {
      const auto found = check_numbers<std::int64_t>({max, max, max, max, wrong}, Dtype::kInt64, min, max);
      ASSERT_TRUE(found) << wrong;
      EXPECT_FALSE(found->wrong_type);
      EXPECT_EQ(found->message, "input 'ids' of an item has the number " + std::to_string(wrong) +
                                    ", the model wants " + std::to_string(min) + " to " + std::to_string(max));
    }
  }
}

TEST(CheckValues, KnowsAllIntegerTypes) {
  EXPECT_TRUE(check_numbers<std::uint8_t>({3, 200}, Dtype::kUint8, 0, 100));
  EXPECT_FALSE(check_numbers<std::uint8_t>({3, 200}, Dtype::kUint8, 0, 999));
  EXPECT_TRUE(check_numbers<std::int8_t>({3, -1}, Dtype::kInt8, 0, 100));
  EXPECT_TRUE(check_numbers<std::int16_t>({3, -1}, Dtype::kInt16, 0, 100));
  EXPECT_TRUE(check_numbers<std::int32_t>({101}, Dtype::kInt32, 0, 100));
  EXPECT_FALSE(check_numbers<std::int32_t>({100, -100}, Dtype::kInt32, -100, 100));
}

TEST(CheckValues, ReadsTheNumbersOfAViewOnly) {
  const std::vector<std::int64_t> numbers{1, 99, 2, 99, 3, 99};  // a table of 3 x 2, whose second column is not read
  TensorSpec input;
  input.min_value = 0;
  input.max_value = 9;
  const auto* data = reinterpret_cast<const std::byte*>(numbers.data());
  EXPECT_FALSE(check_values(input, {.data = data, .dtype = Dtype::kInt64, .sizes = {3, 1}, .strides = {16, 8}}));
  EXPECT_FALSE(check_values(input, {.data = data + 32, .dtype = Dtype::kInt64, .sizes = {3}, .strides = {-16}}));
  EXPECT_TRUE(check_values(input, {.data = data, .dtype = Dtype::kInt64, .sizes = {3, 2}, .strides = {16, 8}}));
  EXPECT_FALSE(check_values(input, {.data = data, .dtype = Dtype::kInt64, .sizes = {}, .strides = {}}));
  EXPECT_TRUE(check_values(input, {.data = data + 8, .dtype = Dtype::kInt64, .sizes = {}, .strides = {}}));
  EXPECT_FALSE(check_values(input, {.data = data + 8, .dtype = Dtype::kInt64, .sizes = {0, 4}, .strides = {8, 8}}));
}

}  // namespace
}  // namespace service_streamer::native
