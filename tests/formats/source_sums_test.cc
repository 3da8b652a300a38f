// SPDX-License-Identifier: Apache-2.0
// Values read from zip archives are compared with the checksums in them.
#include "fullshard/formats/weights/source_sums.h"

#include <fmt/format.h>

#include <map>
#include <optional>

#include "fullshard/formats/crc32.h"
#include "fullshard/formats/element_type.h"
#include "fullshard/formats/entry_sum.h"
#include "fullshard/formats/foreign/dcp_folder.h"
#include "fullshard/formats/foreign/deepspeed_folder.h"
#include "fullshard/formats/torch/torch_source.h"
#include "fullshard/formats/torch/torch_writer.h"
#include "fullshard/formats/weights/open_weights.h"
#include "fullshard/tensor_io/read_tensor.h"
#include "tests/errors.h"
#include "tests/formats/checkpoint_fixture.h"

namespace fullshard::testing {
namespace {

using Contents = std::map<std::string, at::Tensor>;

// Everything that can be read, compared; nothing when it is refused.
std::optional<Contents> contents_of(const TensorSource& source) {
  Contents contents;
  for (const auto& tensor : source.tensors()) {
    if (is_readable(tensor.dtype))
      contents[tensor.name] = tensor_io::read_tensor(source, tensor.name);
  }
  formats::check_sums_of(source);
  return contents;
}

std::optional<Contents> contents_of(const std::string& path) {
  try {
    return contents_of(*open_weights(path));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input) << error.what();
    return std::nullopt;
  }
}

bool are_same(const Contents& a, const Contents& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [name, values] : a) {
    const auto other = b.find(name);
    if (other == b.end() || other->second.scalar_type() != values.scalar_type()) return false;
    if (other->second.sizes() != values.sizes() || !other->second.equal(values)) return false;
  }
  return true;
}

// Flips bits all over a file: what is read is refused or right. Gives how many were refused.
int flip_everywhere(const std::string& folder, const std::string& file, size_t step) {
  const auto whole = contents_of(folder);
  EXPECT_TRUE(whole.has_value());
  const std::string bytes = read_file(file);
  int refused = 0;
  for (size_t at = 0; at < bytes.size(); at += step) {
    std::string flipped = bytes;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << at % 8));
    write_file(file, flipped);
    const auto found = contents_of(folder);
    if (!found) {
      ++refused;
    } else {
      EXPECT_TRUE(are_same(*found, *whole)) << file << ": byte " << at << " was not noticed";
    }
  }
  write_file(file, bytes);
  return refused;
}

TEST(SourceSums, EveryFlipInATorchFileIsNoticedOrHarmless) {
  const TemporaryFolder folder;
  const std::string path = folder.file("state_dict.bin");
  write_file(path, read_file(fixture("state_dict.bin")));
  EXPECT_GT(flip_everywhere(path, path, 11), 100);
}

TEST(SourceSums, EveryFlipInADeepSpeedFolderIsNoticedOrHarmless) {
  for (const auto* name : {"zero2/global_step2", "zero3/global_step2"}) {
    const FolderCopy copy(checkpoint_fixture(name));
    for (const auto& file : formats::names_in(copy.path())) {
      if (!file.ends_with("_states.pt")) continue;
      SCOPED_TRACE(file);
      EXPECT_GT(flip_everywhere(copy.path(), copy.file(file), 101), 5);
    }
  }
}

TEST(SourceSums, EveryFlipInTheFilesOfADcpFolderIsNoticedOrHarmless) {
  const FolderCopy copy(checkpoint_fixture("dcp"));
  for (const auto& file : formats::names_in(copy.path())) {
    if (!file.ends_with(".distcp")) continue;
    SCOPED_TRACE(file);
    EXPECT_GT(flip_everywhere(copy.path(), copy.file(file), 1009), 5);
  }
}

// A storage of eight floats, of which two tensors show the first three and the last three.
class TwoViews : public ::testing::Test {
 protected:
  TwoViews() {
    formats::TorchWriter writer(path_);
    writer.pickle().begin_dict();
    const size_t storage = writer.add_storage(at::kFloat, 8);
    writer.pickle().put("first");
    writer.put_tensor(storage, {3});
    writer.pickle().put("last");
    writer.put_tensor(storage, {3}, 5);
    writer.pickle().end_dict();
    writer.begin();
    writer.write_next(storage, ramp({8}));
    writer.finish();
    const formats::FileHandle file = formats::FileHandle::open(path_);
    entry_ = formats::ZipArchive(file, 0, file.size()).entries().at("archive/data/0");
  }

  void flip(int64_t element) {
    std::string bytes = read_file(path_);
    bytes[static_cast<size_t>(entry_.offset + 4 * element)] ^= 0x20;
    write_file(path_, bytes);
  }

  std::string wrong_sum(const std::string& what) {
    const std::string bytes = read_file(path_);
    return fmt::format(
        "{}: tensor '{}': entry 'archive/data/0' has the checksum {:08x}, expected {:08x}; the "
        "file is damaged: copy it again",
        path_, what, formats::crc32(0, bytes.data() + entry_.offset, entry_.bytes),
        entry_.checksum);
  }

  TemporaryFolder folder_;
  std::string path_ = folder_.file("two.bin");
  formats::ZipEntry entry_;
};

TEST_F(TwoViews, WhatWasReadIsComparedEvenWhereTheRestWasNot) {
  for (const int64_t element : {0, 2, 4, 6, 7}) {
    flip(element);
    const formats::TorchSource source(path_);
    EXPECT_NO_THROW(tensor_io::read_tensor(source, "last"));
    EXPECT_EQ(message_of([&] { formats::check_sums_of(source, {"last"}); }), wrong_sum("last"));
    EXPECT_EQ(message_of([&] { formats::check_sums_of(source, {"last"}); }), wrong_sum("last"))
        << "again";
    flip(element);
  }
}

TEST_F(TwoViews, OfSeveralRanksOneComparesEachStorage) {
  flip(4);
  int refused = 0;
  for (int rank = 0; rank < 3; ++rank) {
    const formats::TorchSource source(path_);
    if (message_of([&] {
          formats::check_sums_of(source, {"first", "last"}, rank, 3);
        }) != "no error") {
      ++refused;
    }
  }
  EXPECT_EQ(refused, 1);
}

// As torch.serialization.set_crc32_options(False) leaves them.
TEST_F(TwoViews, AFileWithoutChecksumsIsReadAsItIs) {
  std::string bytes = read_file(path_);
  for (size_t at = bytes.find("PK\x01\x02"); at != std::string::npos;
       at = bytes.find("PK\x01\x02", at + 4)) {
    bytes.replace(at + 16, 4, std::string(4, '\0'));
  }
  write_file(path_, bytes);
  const formats::TorchSource source(path_);
  EXPECT_FALSE(formats::TorchFile(path_).has_checksums());
  expect_equal(tensor_io::read_tensor(source, "first"), ramp({3}));
  EXPECT_NO_THROW(formats::check_sums_of(source));
}

class Sums : public TwoViews {
 protected:
  std::string bytes_ = read_file(path_).substr(static_cast<size_t>(entry_.offset), 32);

  void add(formats::EntrySum& sum, int64_t begin, int64_t end) {
    sum.add(entry_.offset + begin, bytes_.data() + begin, end - begin, "tensor 'x'");
  }
};

TEST_F(Sums, PiecesInAnyOrderMakeTheWhole) {
  const std::vector<std::vector<std::pair<int64_t, int64_t>>> orders = {
      {{0, 32}},
      {{16, 32}, {0, 16}},
      {{0, 4}, {28, 32}, {4, 28}},
      {{8, 12}, {0, 20}, {10, 32}},
      {{0, 1}, {2, 3}, {1, 2}, {31, 32}, {3, 31}},
      {{5, 6}, {5, 6}, {0, 32}}};
  for (const auto& order : orders) {
    formats::EntrySum right("f", "data/0", entry_);
    for (const auto& [begin, end] : order) EXPECT_NO_THROW(add(right, begin, end));
    formats::ZipEntry other = entry_;
    other.checksum ^= 1;
    formats::EntrySum wrong("f", "data/0", other);
    std::string found = "no error";
    for (const auto& [begin, end] : order) {
      EXPECT_EQ(found, "no error");
      found = message_of([&, b = begin, e = end] { add(wrong, b, e); });
    }
    EXPECT_EQ(found, fmt::format("f: tensor 'x': entry 'data/0' has the checksum {:08x}, expected "
                                 "{:08x}; the file is damaged: copy it again",
                                 entry_.checksum, other.checksum));
  }
}

TEST_F(Sums, NothingIsReadTwice) {
  formats::EntrySum sum("f", "data/0", entry_);
  add(sum, 0, 32);
  // Not looked at any more: the file may as well be another.
  const std::string other = folder_.file("other");
  write_file(other, "short");
  EXPECT_NO_THROW(sum.complete(formats::FileHandle::open(other), "x"));
}

}  // namespace
}  // namespace fullshard::testing
