// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <random>

#include "fullshard/formats/safetensors/safetensors_file.h"
#include "fullshard/tensor_io/read_tensor.h"
#include "tests/formats/fixture.h"

namespace fullshard::testing {
namespace {

class SafetensorsDamage : public ::testing::Test {
 protected:
  std::string error_of(std::string_view bytes) {
    write_file(folder_.file("f"), bytes);
    return input_error(folder_.path(), [&] { formats::SafetensorsFile(folder_.file("f")); });
  }

  static std::string file_of(std::string_view json, size_t data_bytes) {
    const uint64_t length = json.size();
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, 8);
    return bytes + std::string(json) + std::string(data_bytes, 'x');
  }

  TemporaryFolder folder_;
};

TEST_F(SafetensorsDamage, NamesTruncationAtEveryByte) {
  const std::string whole = read_file(fixture("written.safetensors"));
  uint64_t length = 0;
  std::memcpy(&length, whole.data(), 8);
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string expected =
        size < 8
            ? fmt::format("f: has {} bytes, too few for a safetensors file: copy it again", size)
        : size < 8 + length
            ? fmt::format(
                  "f: its header would take {} bytes and the file has {}; it is truncated, or not "
                  "a safetensors file",
                  length, size)
            : fmt::format(
                  "f: is truncated: its tensors take {} bytes, only {} are present; copy it again",
                  whole.size() - 8 - length, size - 8 - length);
    ASSERT_EQ(error_of(whole.substr(0, size)), expected);
  }
  EXPECT_EQ(error_of(whole + "y"), "f: has 1 bytes after its last tensor");
  EXPECT_EQ(error_of(whole), "no error");
}

TEST_F(SafetensorsDamage, NeverAllocatesWhatAHeaderLengthClaims) {
  std::string bytes = read_file(fixture("written.safetensors"));
  const uint64_t huge = uint64_t{1} << 60;
  std::memcpy(bytes.data(), &huge, 8);
  EXPECT_EQ(error_of(bytes),
            fmt::format("f: its header would take 1152921504606846976 bytes and the file has {}; "
                        "it is truncated, or not a safetensors file",
                        bytes.size()));
  const uint64_t all = ~uint64_t{0};
  std::memcpy(bytes.data(), &all, 8);
  EXPECT_EQ(error_of(bytes),
            fmt::format("f: its header would take 18446744073709551615 bytes and the file has {}; "
                        "it is truncated, or not a safetensors file",
                        bytes.size()));
}

TEST_F(SafetensorsDamage, NamesWhatIsWrongWithAHeader) {
  EXPECT_EQ(error_of(file_of("", 0)), "f: its header does not begin with '{'");
  EXPECT_EQ(error_of(file_of("[]", 0)), "f: its header does not begin with '{'");
  EXPECT_EQ(error_of(file_of("{}", 0)), "no error");
  EXPECT_EQ(error_of(file_of("{} x", 0)), "f: header: invalid JSON at byte 4");
  EXPECT_EQ(error_of(file_of(R"({"a":)", 0)), "f: header: invalid JSON at byte 6");
  EXPECT_EQ(error_of(file_of("{\"\xff\":1}", 0)), "f: header: invalid JSON at byte 3");
  EXPECT_EQ(error_of(file_of(R"({"a":1e999})", 0)), "f: header: number out of range");
  EXPECT_EQ(error_of(file_of(R"({"a":1})", 0)), "f: tensor 'a': its entry is not a JSON object");
  EXPECT_EQ(error_of(file_of(R"({"__metadata__":{"a":1}})", 0)),
            "f: header: __metadata__ 'a' is not a string");
  EXPECT_EQ(error_of(file_of(R"({"__metadata__":[]})", 0)),
            "f: header: __metadata__ is not a JSON object");
  EXPECT_EQ(error_of("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"),
            "f: is a pointer of Git LFS, not the weights; fetch them with git lfs pull");
  const std::string deep = "{\"a\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}";
  EXPECT_EQ(error_of(file_of(deep, 0)), "f: header: is nested more than 8 deep");
}

TEST_F(SafetensorsDamage, NamesWhatIsWrongWithATensor) {
  const auto error = [&](std::string_view dtype, std::string_view shape, std::string_view offsets) {
    return error_of(file_of(fmt::format(R"({{"a":{{"dtype":{},"shape":{},"data_offsets":{}}}}})",
                                        dtype, shape, offsets),
                            8));
  };
  EXPECT_EQ(error(R"("F32")", "[2]", "[0,8]"), "no error");
  EXPECT_EQ(error(R"("F33")", "[2]", "[0,8]"),
            "f: tensor 'a': its dtype is 'F33', expected one of U64, I64, F64, C64, F32, U32, I32, "
            "BF16, F16, U16, I16, F8_E5M2FNUZ, F8_E4M3FNUZ, F8_E8M0, F8_E4M3, F8_E5M2, I8, U8, "
            "F6_E3M2, F6_E2M3, F4, BOOL");
  EXPECT_EQ(error("32", "[2]", "[0,8]"), "f: tensor 'a': has no dtype");
  const std::string shape = "f: tensor 'a': its shape is not a list of non-negative integers";
  EXPECT_EQ(error(R"("F32")", "[-2]", "[0,8]"), shape);
  EXPECT_EQ(error(R"("F32")", "[2.0]", "[0,8]"), shape);
  EXPECT_EQ(error(R"("F32")", "[18446744073709551615]", "[0,8]"), shape);
  EXPECT_EQ(error(R"("F32")", "2", "[0,8]"), shape);
  const std::string offsets = "f: tensor 'a': its data_offsets are not [begin, end]";
  EXPECT_EQ(error(R"("F32")", "[2]", "[8,0]"), offsets);
  EXPECT_EQ(error(R"("F32")", "[2]", "[0]"), offsets);
  EXPECT_EQ(error(R"("F32")", "[2]", "[-8,0]"), offsets);
  EXPECT_EQ(error(R"("F32")", "[3]", "[0,8]"),
            "f: tensor 'a': shape [3] of F32 takes 12 bytes, its data_offsets give 8");
  EXPECT_EQ(error(R"("F4")", "[3]", "[0,1]"),
            "f: tensor 'a': shape [3] of F4 has no valid size in bytes");
  // 2^62 elements of 4 bytes are 2^64, which is 0 to a careless product.
  EXPECT_EQ(error(R"("F32")", "[2147483648,2147483648]", "[0,0]"),
            "f: tensor 'a': shape [2147483648, 2147483648] of F32 has no valid size in bytes");
  EXPECT_EQ(error(R"("F32")", "[2]", "[8,16]"),
            "f: tensor 'a': begins at byte 8, 8 bytes after the previous one");
  EXPECT_EQ(error(R"("F32")", "[4]", "[0,16]"),
            "f: is truncated: its tensors take 16 bytes, only 8 are present; copy it again");
}

TEST_F(SafetensorsDamage, NamesOverlapsHolesAndDoubles) {
  const auto error = [&](std::string_view first, std::string_view second, std::string_view name) {
    const auto tensor = R"("{}":{{"dtype":"U8","shape":[4],"data_offsets":{}}})";
    return error_of(file_of("{" + fmt::format(fmt::runtime(tensor), "a", first) + "," +
                                fmt::format(fmt::runtime(tensor), name, second) + "}",
                            8));
  };
  EXPECT_EQ(error("[0,4]", "[4,8]", "b"), "no error");
  EXPECT_EQ(error("[4,8]", "[0,4]", "b"), "no error");
  EXPECT_EQ(error("[0,4]", "[2,6]", "b"),
            "f: tensor 'b': begins at byte 2, inside the previous one");
  EXPECT_EQ(error("[0,4]", "[0,4]", "b"),
            "f: tensor 'b': begins at byte 0, inside the previous one");
  EXPECT_EQ(error("[0,4]", "[6,10]", "b"),
            "f: tensor 'b': begins at byte 6, 2 bytes after the previous one");
  EXPECT_EQ(error("[0,4]", "[4,8]", "a"), "f: header: has the key 'a' twice");
}

// A flipped bit may still make a valid file; it must never make anything but an Error.
TEST_F(SafetensorsDamage, SurvivesFlippedBitsInItsHeader) {
  const std::string whole = read_file(fixture("written.safetensors"));
  uint64_t length = 0;
  std::memcpy(&length, whole.data(), 8);
  std::mt19937 random(6);
  int refused = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = whole;
    bytes[random() % (8 + length)] ^= static_cast<char>(1U << (random() % 8));
    refused += error_of(bytes) != "no error" ? 1 : 0;
  }
  EXPECT_GT(refused, 1500);
}

TEST_F(SafetensorsDamage, NamesFileAndTensorWhenTheFileShrinksLater) {
  const std::string whole = read_file(fixture("written.safetensors"));
  write_file(folder_.file("f"), whole);
  const formats::SafetensorsFile file(folder_.file("f"));
  ASSERT_EQ(::truncate(folder_.file("f").c_str(), static_cast<off_t>(whole.size() - 3)), 0);
  EXPECT_EQ(input_error(folder_.path(), [&] { tensor_io::read_tensor(file, "bool"); }),
            fmt::format("f: tensor 'bool': the file ends at byte {}, expected bytes {} to {}; the "
                        "file is truncated: copy it again",
                        whole.size() - 3, whole.size() - 5, whole.size()));
}

TEST_F(SafetensorsDamage, OpensRegularFilesOnly) {
  EXPECT_EQ(input_error(folder_.path(), [&] { formats::SafetensorsFile(folder_.path() + "/"); })
                .substr(0, 25),
            ": is not a regular file");
  EXPECT_EQ(input_error(folder_.path(), [&] { formats::SafetensorsFile(folder_.file("absent")); }),
            "absent: cannot be opened: No such file or directory");
  ASSERT_EQ(::mkfifo(folder_.file("pipe").c_str(), 0600), 0);
  EXPECT_EQ(input_error(folder_.path(), [&] { formats::SafetensorsFile(folder_.file("pipe")); }),
            "pipe: is not a regular file");
}

}  // namespace
}  // namespace fullshard::testing
