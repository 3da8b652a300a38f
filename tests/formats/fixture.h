// SPDX-License-Identifier: Apache-2.0
// What the tests of file formats share: the files of tests/fixtures/formats, and their contents.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "fullshard/base/error.h"
#include "fullshard/formats/tensor_source.h"
#include "tests/files.h"

namespace fullshard::testing {

inline std::string fixture(const std::string& name) {
  return std::string(FULLSHARD_SOURCE_DIR) + "/tests/fixtures/formats/" + name;
}

// A new file each time: ext4 flushes one to disk when it is truncated and written anew.
inline void write_file(const std::string& path, std::string_view bytes) {
  ::unlink(path.c_str());
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// The text of the error of this kind that `action` must throw, without the folder's path.
inline std::string error_of_kind(ErrorKind kind, const std::string& folder,
                                 const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_status(), static_cast<int>(kind));
    std::string text = error.what();
    for (size_t at = text.find(folder + "/"); at != std::string::npos;
         at = text.find(folder + "/")) {
      text.erase(at, folder.size() + 1);
    }
    return text;
  }
  return "no error";
}

inline std::string input_error(const std::string& folder, const std::function<void()>& action) {
  return error_of_kind(ErrorKind::input, folder, action);
}

// Element i is i - 3; of booleans, whether i is odd.
inline at::Tensor ramp(at::IntArrayRef shape, at::ScalarType dtype = at::kFloat) {
  int64_t numel = 1;
  for (const int64_t size : shape) numel *= size;
  const at::Tensor index = at::arange(numel);
  if (dtype == at::kBool) return index.remainder(2).eq(1).reshape(shape);
  return (index - 3).to(dtype).reshape(shape);
}

inline void expect_equal(const at::Tensor& found, const at::Tensor& expected) {
  EXPECT_EQ(found.scalar_type(), expected.scalar_type());
  EXPECT_EQ(found.sizes(), expected.sizes());
  EXPECT_TRUE(found.equal(expected)) << found << expected;
}

struct Expected {
  std::string name;
  at::Tensor values;
};

// What written.safetensors and, among others, state_dict.bin hold.
inline std::vector<Expected> expected_tensors() {
  return {{"f64", ramp({2, 3}, at::kDouble)},
          {"f32", ramp({3, 5})},
          {"f16", ramp({7}, at::kHalf)},
          {"bf16", ramp({3, 3}, at::kBFloat16)},
          {"i64", ramp({5}, at::kLong)},
          {"i32", ramp({5}, at::kInt)},
          {"i16", ramp({3}, at::kShort)},
          {"i8", ramp({9}, at::kChar)},
          {"u8", ramp({5}, at::kLong).add(3).to(at::kByte)},
          {"bool", ramp({5}, at::kBool)},
          {"scalar", ramp({})},
          {"empty", ramp({0, 4})},
          {"odd \"name\"\n\u00e9\\/\x7f", ramp({2})}};
}

}  // namespace fullshard::testing
