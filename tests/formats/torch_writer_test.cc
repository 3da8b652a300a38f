// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/torch/torch_writer.h"

#include "fullshard/formats/crc32.h"
#include "fullshard/formats/torch/torch_file.h"
#include "fullshard/formats/torch/torch_source.h"
#include "fullshard/formats/zip_layout.h"
#include "fullshard/tensor_io/read_tensor.h"
#include "tests/formats/fixture.h"

namespace fullshard::testing {
namespace {

TEST(Crc32, IsThatOfZip) {
  const std::string digits = "123456789";
  EXPECT_EQ(formats::crc32(0, digits.data(), 9), 0xCBF43926U);
  EXPECT_EQ(formats::crc32(formats::crc32(0, digits.data(), 4), digits.data() + 4, 5), 0xCBF43926U);
  const std::string longer(1000, 'x');
  EXPECT_EQ(formats::crc32(formats::crc32(0, longer.data(), 13), longer.data() + 13, 987),
            formats::crc32(0, longer.data(), 1000));
}

TEST(TorchWriter, WritesWhatTorchSourceReads) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.bin");
  formats::TorchWriter writer(path);
  writer.pickle().begin_dict();
  const auto expected = expected_tensors();
  for (const auto& [name, values] : expected) {
    writer.pickle().put(name);
    writer.put_tensor(writer.add_storage(values.scalar_type(), values.numel()),
                      values.sizes().vec());
  }
  writer.pickle().put("second row");
  writer.put_tensor(1, {5}, 5);
  writer.pickle().end_dict();
  writer.begin();
  for (size_t i = 0; i < expected.size(); ++i) {
    const at::Tensor flat = expected[i].values.reshape({-1});
    writer.write_next(i, flat.slice(0, 0, flat.numel() / 2));
    writer.write_next(i, flat.slice(0, flat.numel() / 2));
  }
  EXPECT_FALSE(file_exists(path));
  writer.finish();
  EXPECT_FALSE(file_exists(path + ".part"));
  const formats::TorchSource source(path);
  EXPECT_EQ(source.tensors().size(), expected.size() + 1);
  for (const auto& [name, values] : expected) {
    SCOPED_TRACE(name);
    expect_equal(tensor_io::read_tensor(source, name), values);
  }
  expect_equal(tensor_io::read_tensor(source, "second row"), expected[1].values[1]);
  formats::TorchFile(path).check_sums("file");
}

TEST(TorchWriter, CastsAndKeepsScalarsOfEveryKind) {
  const TemporaryFolder folder;
  formats::TorchWriter writer(folder.file("a.bin"));
  auto& pickle = writer.pickle();
  pickle.begin_dict();
  pickle.put("none");
  pickle.put_none();
  pickle.put("large");
  pickle.put(int64_t{1} << 40);
  pickle.put("small");
  pickle.put(int64_t{-7});
  pickle.put("real");
  pickle.put(-0.75);
  pickle.put("size");
  pickle.put_size(std::vector<int64_t>{2, 3});
  pickle.put("list");
  pickle.begin_list();
  pickle.put(true);
  writer.put_tensor(writer.add_storage(at::kBFloat16, 3), {3});
  pickle.end_list();
  pickle.end_dict();
  writer.begin();
  writer.write_next(0, ramp({3}));
  writer.finish();
  const formats::TorchFile file(folder.file("a.bin"));
  EXPECT_EQ(file.root().find("none")->kind, formats::PickleKind::none);
  EXPECT_EQ(file.root().find("large")->integer, int64_t{1} << 40);
  EXPECT_EQ(file.root().find("small")->integer, -7);
  EXPECT_EQ(file.root().find("real")->real, -0.75);
  EXPECT_EQ(file.root().find("size")->items[1]->integer, 3);
  const auto& list = file.root().find("list")->items;
  EXPECT_EQ(list[0]->integer, 1);
  const auto tensor = file.tensor(*list[1], "f");
  ASSERT_TRUE(tensor.has_value());
  EXPECT_EQ(tensor->dtype, at::kBFloat16);
  const at::Tensor out = at::empty({3});
  file.read(*tensor, 0, out, "f");
  EXPECT_TRUE(out.equal(ramp({3})));
}

TEST(TorchWriter, LeavesNothingWhenItIsNotFinished) {
  const TemporaryFolder folder;
  {
    formats::TorchWriter writer(folder.file("a.bin"));
    writer.put_tensor(writer.add_storage(at::kFloat, 4), {4});
    writer.begin();
    writer.write_next(0, ramp({3}));
    EXPECT_EQ(input_error(folder.path(), [&] { writer.finish(); }),
              "a.bin: storage 0 has 4 elements, 3 were written");
    EXPECT_EQ(input_error(folder.path(), [&] { writer.write_next(0, ramp({2})); }),
              "a.bin: storage 0 has 4 elements, 3 were written and 2 more given");
  }
  EXPECT_TRUE(entries_of(folder.path()).empty());
}

TEST(TorchFile, NoticesAFlippedBit) {
  const TemporaryFolder folder;
  std::string bytes = read_file(fixture("checkpoint.pt"));
  const size_t at = bytes.rfind("data/0", bytes.rfind("PK\x01\x02"));
  ASSERT_NE(at, std::string::npos);
  const formats::TorchFile good(fixture("checkpoint.pt"));
  good.check_sums("file");
  int64_t found = 0;
  for (size_t bit = 0; bit < bytes.size(); bit += 7) {
    std::string damaged = bytes;
    damaged[bit] = static_cast<char>(damaged[bit] ^ 4);
    write_file(folder.file("a.pt"), damaged);
    try {
      formats::TorchFile(folder.file("a.pt")).check_sums("file");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::input);
      ++found;
    }
  }
  EXPECT_GT(found, 20);  // padding and dates of the archive mean nothing
}

// Sizes that no test can write: the fields alone.
TEST(ZipLayout, PutsLargeNumbersIntoWideFields) {
  formats::ZipLayout zip;
  zip.add("a", int64_t{5} << 32);
  zip.add("b", 3);
  EXPECT_EQ(zip.slot(0).offset % 64, 0);
  EXPECT_EQ(zip.slot(1).offset % 64, 0);
  EXPECT_EQ(zip.slot(1).header, zip.slot(0).offset + (int64_t{5} << 32));
  const auto at = [](const std::string& bytes, size_t offset) {
    int64_t number = 0;
    std::memcpy(&number, bytes.data() + offset, sizeof number);
    return number;
  };
  const std::string header = zip.slot(0).header_bytes();
  EXPECT_EQ(static_cast<int64_t>(header.size()), zip.slot(0).offset);
  EXPECT_EQ(header.substr(18, 8), std::string(8, '\xff'));
  EXPECT_EQ(at(header, 30 + 1 + 4), int64_t{5} << 32);
  const std::string directory = zip.directory_bytes();
  EXPECT_EQ(directory.substr(42, 4), std::string(4, '\0'));
  EXPECT_EQ(at(directory, 46 + 1 + 4), int64_t{5} << 32);
  const size_t second = directory.find("PK\x01\x02", 1);
  EXPECT_EQ(directory.substr(second + 42, 4), std::string(4, '\xff'));
  EXPECT_EQ(at(directory, second + 46 + 1 + 4), zip.slot(1).header);
  const size_t record = directory.find("PK\x06\x06");
  ASSERT_NE(record, std::string::npos);
  EXPECT_EQ(at(directory, record + 48), zip.directory_offset());
}

}  // namespace
}  // namespace fullshard::testing
