// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/safetensors/safetensors_file.h"

#include <algorithm>

#include "fullshard/tensor_io/read_tensor.h"
#include "tests/formats/fixture.h"

namespace fullshard::testing {
namespace {

TEST(SafetensorsFile, ReadsEveryDtypeAsThePackageWroteIt) {
  const formats::SafetensorsFile file(fixture("all_dtypes.safetensors"));
  for (const auto& [name, values] : expected_tensors()) {
    SCOPED_TRACE(name);
    ASSERT_NE(file.find(name), nullptr);
    EXPECT_EQ(file.find(name)->file, fixture("all_dtypes.safetensors"));
    expect_equal(tensor_io::read_tensor(file, name), values);
  }
  EXPECT_EQ(file.tensors().size(), 16);
  EXPECT_TRUE(std::ranges::is_sorted(file.tensors(), {}, &StoredTensor::name));
  EXPECT_EQ(file.metadata(),
            (std::map<std::string, std::string>{{"format", "pt"}, {"made", "here"}}));
  EXPECT_EQ(file.find("absent"), nullptr);
}

TEST(SafetensorsFile, ListsDtypesThatItDoesNotRead) {
  const formats::SafetensorsFile file(fixture("all_dtypes.safetensors"));
  ASSERT_NE(file.find("u16"), nullptr);
  EXPECT_EQ(file.find("u16")->dtype, at::ScalarType::UInt16);
  EXPECT_EQ(file.find("u16")->numel(), 4);
  EXPECT_EQ(file.find("f8")->dtype, at::ScalarType::Float8_e4m3fn);
  const auto folder = fixture("x").substr(0, fixture("x").size() - 2);
  EXPECT_EQ(
      input_error(folder, [&] { tensor_io::read_tensor(file, "c64"); }),
      "all_dtypes.safetensors: tensor 'c64': unsupported dtype ComplexFloat; convert the file");
  EXPECT_EQ(
      input_error(folder, [&] { file.read("f8", 0, at::empty({1})); }),
      "all_dtypes.safetensors: tensor 'f8': unsupported dtype Float8_e4m3fn; convert the file");
}

// Every pair of dtypes, every range.
TEST(SafetensorsFile, ConvertsAnyRangeToAnyDtype) {
  const formats::SafetensorsFile file(fixture("all_dtypes.safetensors"));
  for (const auto& [name, values] : expected_tensors()) {
    for (const auto dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt,
                             at::kShort, at::kChar, at::kBool}) {
      const at::Tensor flat = values.flatten().to(dtype);
      for (int64_t begin = 0; begin <= flat.numel(); ++begin) {
        for (int64_t count = 0; count <= flat.numel() - begin; ++count) {
          const at::Tensor out = at::empty({count}, dtype);
          file.read(name, begin, out);
          EXPECT_TRUE(out.equal(flat.narrow(0, begin, count))) << name << begin << " " << count;
        }
      }
    }
  }
}

TEST(SafetensorsFile, ConvertsBeyondOneBlock) {
  const TemporaryFolder folder;
  const std::string path = folder.file("large.safetensors");
  constexpr int64_t kNumel = (int64_t{1} << 19) * 2 + 17;  // two blocks of 16-bit values and some
  const at::Tensor values = at::arange(kNumel).remainder(251).to(at::kBFloat16);
  std::string header = R"({"a":{"dtype":"BF16","shape":[1048593],"data_offsets":[0,2097186]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  bytes += header;
  bytes.append(static_cast<const char*>(values.const_data_ptr()), kNumel * 2);
  write_file(path, bytes);
  const formats::SafetensorsFile file(path);
  const at::Tensor out = at::empty({kNumel - 5});
  file.read("a", 5, out);
  EXPECT_TRUE(out.equal(values.to(at::kFloat).narrow(0, 5, kNumel - 5)));
}

TEST(SafetensorsFile, RefusesRangesAndTargetsThatDoNotFit) {
  const formats::SafetensorsFile file(fixture("written.safetensors"));
  const auto folder = fixture("x").substr(0, fixture("x").size() - 2);
  EXPECT_EQ(input_error(folder, [&] { file.read("f16", 5, at::empty({3})); }),
            "written.safetensors: tensor 'f16': 3 elements from 5 on were requested; it has 7");
  EXPECT_EQ(input_error(folder, [&] { file.read("f16", -1, at::empty({3})); }),
            "written.safetensors: tensor 'f16': 3 elements from -1 on were requested; it has 7");
  EXPECT_EQ(input_error(folder,
                        [&] {
                          file.read("f16", 0, at::empty({2, 2}));
                        }),
            "elements: expected a 1-D contiguous CPU tensor, got shape [2, 2]");
  EXPECT_EQ(input_error(folder, [&] { file.read("scaler", 0, at::empty({1})); }),
            "written.safetensors: has no tensor 'scaler' among its 13; did you mean 'scalar'?");
}

TEST(SafetensorsFile, ReadsIntoParametersWithoutAGraph) {
  const formats::SafetensorsFile file(fixture("written.safetensors"));
  const at::Tensor parameter = at::zeros({15}, at::TensorOptions().requires_grad(true));
  file.read("f32", 0, parameter);
  EXPECT_TRUE(parameter.detach().equal(ramp({15})));
  const at::Tensor half = at::zeros({7}, at::TensorOptions().requires_grad(true));
  file.read("f16", 0, half);
  EXPECT_TRUE(half.is_leaf());
}

TEST(SafetensorsFile, MakesBooleansOfAnyByte) {
  const TemporaryFolder folder;
  const std::string path = folder.file("bool.safetensors");
  std::string bytes = read_file(fixture("written.safetensors"));
  bytes.replace(bytes.size() - 5, 5, std::string("\x00\x02\x00\xff\x01", 5));  // BOOL lies last
  write_file(path, bytes);
  const formats::SafetensorsFile file(path);
  const at::Tensor expected = at::tensor({0.0, 1.0, 0.0, 1.0, 1.0}, at::kFloat);
  EXPECT_TRUE(tensor_io::read_tensor(file, "bool").equal(expected.to(at::kBool)));
  const at::Tensor out = at::empty({5});
  file.read("bool", 0, out);
  EXPECT_TRUE(out.equal(expected));
}

}  // namespace
}  // namespace fullshard::testing
