// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/torch/torch_source.h"

#include <fmt/format.h>

#include <thread>

#include "fullshard/tensor_io/read_tensor.h"
#include "tests/formats/fixture.h"
#include "tests/formats/zip_builder.h"

namespace fullshard::testing {
namespace {

const std::string kFolder = fixture("x").substr(0, fixture("x").size() - 2);

std::string error_of(const std::string& name) {
  return input_error(kFolder, [&] { formats::TorchSource{fixture(name)}; });
}

std::vector<Expected> expected_views() {
  const at::Tensor base = ramp({4, 6});
  std::vector<Expected> all = expected_tensors();
  all.push_back({"transposed", base.t()});
  all.push_back({"sliced", base.slice(0, 1, 3).slice(1, 0, 6, 2)});
  all.push_back({"shared", base});
  all.push_back({"row", base[2]});
  all.push_back({"expanded", ramp({3, 1}).expand({3, 4})});
  all.push_back({"parameter", ramp({2, 2})});
  all.push_back({"with_attributes", ramp({2, 3})});
  return all;
}

TEST(TorchSource, ReadsAStateDictAsTorchSavedIt) {
  for (const auto* name : {"state_dict.bin", "protocol5.bin"}) {
    const formats::TorchSource source(fixture(name));
    for (const auto& [tensor, values] : expected_views()) {
      SCOPED_TRACE(tensor);
      ASSERT_NE(source.find(tensor), nullptr);
      expect_equal(tensor_io::read_tensor(source, tensor), values);
    }
    EXPECT_EQ(source.tensors().size(), 23);
    EXPECT_EQ(source.find("note"), nullptr);
    EXPECT_EQ(source.find("u16")->dtype, at::ScalarType::UInt16);
    EXPECT_EQ(source.find("f8")->dtype, at::ScalarType::Float8_e4m3fn);
  }
  const formats::TorchFile file(fixture("state_dict.bin"));
  EXPECT_EQ(file.root().state->find("_metadata")->find("")->find("version")->integer, 1);
}

TEST(TorchSource, ConvertsAnyRangeOfAnyView) {
  const formats::TorchSource source(fixture("state_dict.bin"));
  for (const auto& [name, values] : expected_views()) {
    for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kLong}) {
      const at::Tensor flat = values.flatten().to(dtype);
      for (int64_t begin = 0; begin <= flat.numel(); ++begin) {
        for (int64_t count = 0; count <= flat.numel() - begin; ++count) {
          const at::Tensor out = at::empty({count}, dtype);
          source.read(name, begin, out);
          ASSERT_TRUE(out.equal(flat.narrow(0, begin, count))) << name << begin << " " << count;
        }
      }
    }
  }
}

TEST(TorchSource, FindsTheStateDictOfACheckpoint) {
  const formats::TorchSource source(fixture("checkpoint.pt"));
  ASSERT_EQ(source.tensors().size(), 1);
  expect_equal(tensor_io::read_tensor(source, "a"), ramp({3}));
  const formats::TorchSource plain(fixture("plain_zip.bin"));
  expect_equal(tensor_io::read_tensor(plain, "a"), ramp({3}));
}

TEST(TorchSource, RunsNothing) {
  const formats::TorchSource source(fixture("attack.bin"));
  ASSERT_EQ(source.tensors().size(), 1);
  expect_equal(tensor_io::read_tensor(source, "w"), ramp({2}));
  const formats::TorchFile file(fixture("attack.bin"));
  EXPECT_EQ(file.root().find("attack")->describe(), "an object of posix.system");
  EXPECT_FALSE(file_exists("fullshard-pickle-was-run"));
}

TEST(TorchSource, SaysWhatAFileHoldsInstead) {
  EXPECT_EQ(error_of("module.bin"),
            "module.bin: holds an object of torch.nn.modules.linear.Linear, not a dictionary of "
            "tensors; save model.state_dict() instead");
  EXPECT_EQ(error_of("old_format.bin"),
            "old_format.bin: is in the format that torch.save wrote before version 1.6; write it "
            "again in Python: torch.save(torch.load('old_format.bin'), 'old_format.bin')");
  EXPECT_EQ(error_of("compressed.bin"),
            "compressed.bin: entry 'archive/data.pkl': is compressed (method 8); torch.save stores "
            "entries uncompressed: save it again");
  EXPECT_EQ(error_of("sparse.bin"),
            "sparse.bin: tensor 'sparse': is made by torch._utils._rebuild_sparse_tensor; only "
            "dense tensors are supported");
  EXPECT_EQ(
      error_of("no_tensors.pt"),
      "no_tensors.pt: holds no tensors, neither by name nor under state_dict, model or module");
  EXPECT_EQ(error_of("written.safetensors"),
            "written.safetensors: does not begin like a file of torch.save (a zip archive); copy "
            "it again");
}

// A state dict of one tensor 'a' whose every part can be wrong.
struct Crafted {
  std::string kind = "FloatStorage";
  std::string key = "0";
  int64_t numel = 6;
  int64_t first = 0;
  std::string shape = "K\x02K\x03\x86";
  std::string strides = "K\x03K\x01\x86";
  std::string order = "little";
  std::string call = "_rebuild_tensor_v2";

  static std::string text(const std::string& value) {
    return "X" + little(value.size(), 4) + value;
  }
  static std::string number(int64_t value) {
    return "\x8a\x08" + little(static_cast<uint64_t>(value), 8);
  }
  std::string bytes() const {
    const std::string id = "(" + text("storage") + "ctorch\n" + kind + "\n" + text(key) +
                           text("cpu") + number(numel) + "tQ";
    const std::string pickle = "\x80\x02}" + text("a") + "ctorch._utils\n" + call + "\n(" + id +
                               number(first) + shape + strides + "\x89}tRs.";
    return make_zip(
        {{"f/data.pkl", pickle}, {"f/byteorder", order}, {"f/data/0", std::string(24, '\0')}});
  }
};

std::string error_of(const Crafted& crafted) {
  const TemporaryFolder folder;
  write_file(folder.file("f"), crafted.bytes());
  return input_error(folder.path(),
                     [&] { tensor_io::read_tensor(formats::TorchSource(folder.file("f")), "a"); });
}

TEST(TorchSource, ChecksTensorsAgainstTheirStorage) {
  EXPECT_EQ(error_of(Crafted{}), "no error");
  EXPECT_EQ(error_of(Crafted{.key = "1"}), "f: tensor 'a': its storage '1' is not in the file");
  EXPECT_EQ(
      error_of(Crafted{.numel = 7}),
      "f: tensor 'a': its storage '0' has 24 bytes, expected 7 elements of torch.FloatStorage");
  EXPECT_EQ(error_of(Crafted{.numel = INT64_MAX}),
            "f: tensor 'a': its storage '0' has 24 bytes, expected 9223372036854775807 elements of "
            "torch.FloatStorage");
  EXPECT_EQ(error_of(Crafted{.numel = -6}), "f: tensor 'a': the id of its storage is damaged");
  EXPECT_EQ(error_of(Crafted{.kind = "OtherStorage"}),
            "f: tensor 'a': unknown storage class torch.OtherStorage");
  EXPECT_EQ(error_of(Crafted{.first = 1}),
            "f: tensor 'a': shape [2, 3], strides [3, 1], from element 1 on: its storage has 6 "
            "elements");
  EXPECT_EQ(error_of(Crafted{.first = -1}), "f: tensor 'a': its description is damaged");
  EXPECT_EQ(error_of(Crafted{.shape = "K\x02\x85"}),
            "f: tensor 'a': shape [2], strides [3, 1], from element 0 on: its storage has 6 "
            "elements");
  EXPECT_EQ(error_of(Crafted{.strides = "K\x04K\x01\x86"}),
            "f: tensor 'a': shape [2, 3], strides [4, 1], from element 0 on: its storage has 6 "
            "elements");
  EXPECT_EQ(error_of(Crafted{.strides = Crafted::number(INT64_MAX) + "K\x01\x86"}),
            "f: tensor 'a': shape [2, 3], strides [9223372036854775807, 1], from element 0 on: its "
            "storage has 6 elements");
  EXPECT_EQ(error_of(Crafted{.shape = "NN\x86"}),
            "f: tensor 'a': its shape is not a list of non-negative integers");
  EXPECT_EQ(error_of(Crafted{.shape = Crafted::number(INT64_MAX) + "K\x03\x86"}),
            "f: tensor 'a': its shape [9223372036854775807, 3] is impossible");
  EXPECT_EQ(error_of(Crafted{.shape = Crafted::number(int64_t{1} << 40) + "K\x01\x86",
                             .strides = std::string("K\0K\0\x86", 5)}),
            "f: tensor 'a': repeats the 6 elements of its storage to 1099511627776");
  EXPECT_EQ(error_of(Crafted{.order = "big"}),
            "f: its byte order is 'big', only 'little' is supported");
  EXPECT_EQ(error_of(Crafted{.call = "_rebuild_tensor_v3"}),
            "f: tensor 'a': its description is damaged");
}

TEST(TorchSource, ReadsOverlappingStridesRight) {
  const TemporaryFolder folder;
  std::string bytes = Crafted{.shape = "K\x03K\x03\x86", .strides = "K\x01K\x01\x86"}.bytes();
  const at::Tensor storage = ramp({6});
  const size_t at = bytes.find(std::string(24, '\0'));
  bytes.replace(at, 24, static_cast<const char*>(storage.const_data_ptr()), 24);
  write_file(folder.file("f"), bytes);
  expect_equal(tensor_io::read_tensor(formats::TorchSource(folder.file("f")), "a"),
               storage.as_strided({3, 3}, {1, 1}));
}

// Windows of the storage are 131072 elements: this one takes several, transposed and converted.
TEST(TorchSource, ReadsLargeTransposedTensorsInWindows) {
  const TemporaryFolder folder;
  constexpr int64_t kRows = 700, kColumns = 600;
  const at::Tensor base = at::arange(kRows * kColumns).remainder(1013).to(at::kFloat);
  Crafted crafted{.numel = kRows * kColumns,
                  .shape = Crafted::number(kColumns) + Crafted::number(kRows) + "\x86",
                  .strides = "K\x01" + Crafted::number(kColumns) + "\x86"};
  std::string pickle = crafted.bytes();
  const size_t begin = pickle.find("\x80\x02");
  pickle = pickle.substr(begin, pickle.find("tRs.") + 4 - begin);
  write_file(folder.file("f"),
             make_zip({{"f/data.pkl", pickle},
                       {"f/data/0", std::string(static_cast<const char*>(base.const_data_ptr()),
                                                base.nbytes())}}));
  const formats::TorchSource source(folder.file("f"));
  const at::Tensor expected = base.reshape({kRows, kColumns}).t();
  expect_equal(tensor_io::read_tensor(source, "a"), expected);
  const at::Tensor part = at::empty({100'000}, at::kDouble);
  source.read("a", 200'000, part);
  EXPECT_TRUE(part.equal(expected.flatten().narrow(0, 200'000, 100'000).to(at::kDouble)));
}

TEST(TorchSource, MayBeReadByThreads) {
  const formats::TorchSource source(fixture("state_dict.bin"));
  const auto expected = expected_views();
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (const auto& [name, values] : expected)
        right += tensor_io::read_tensor(source, name).equal(values);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(right, 4 * static_cast<int>(expected.size()));
}

TEST(TorchFile, OpensAPartOfAFile) {
  const TemporaryFolder folder;
  const std::string bytes = read_file(fixture("checkpoint.pt"));
  write_file(folder.file("f"), "before" + bytes + "after");
  const formats::TorchFile file(formats::FileHandle::open(folder.file("f")), 6,
                                static_cast<int64_t>(bytes.size()));
  const formats::PickleValue& value = *file.root().find("state_dict")->find("a");
  const at::Tensor out = at::empty({3});
  file.read(*file.tensor(value, "a"), 0, out, "a");
  expect_equal(out, ramp({3}));
  EXPECT_FALSE(file.tensor(*file.root().find("epoch"), "epoch").has_value());
  EXPECT_EQ(
      input_error(
          folder.path(),
          [&] { formats::TorchFile(formats::FileHandle::open(folder.file("f")), 6, 1 << 20); }),
      fmt::format("f: has {} bytes, its bytes 6 to 1048582 were requested", bytes.size() + 11));
}

}  // namespace
}  // namespace fullshard::testing
