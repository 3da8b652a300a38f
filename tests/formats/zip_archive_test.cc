// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/zip_archive.h"

#include "tests/formats/fixture.h"
#include "tests/formats/zip_builder.h"

namespace fullshard::testing {
namespace {

class Zip : public ::testing::Test {
 protected:
  std::string contents(std::string_view bytes, const std::string& name, int64_t begin = 0) {
    write_file(folder_.file("f"), bytes);
    const formats::FileHandle file = formats::FileHandle::open(folder_.file("f"));
    const formats::ZipArchive archive(file, begin, file.size() - begin);
    const formats::ZipEntry* entry = archive.find(name);
    return entry == nullptr ? "not there" : file.read_text(entry->offset, entry->bytes, name);
  }
  std::string error_of(std::string_view bytes) {
    return input_error(folder_.path(), [&] { contents(bytes, "a"); });
  }

  TemporaryFolder folder_;
  std::vector<ZipPiece> pieces_ = {{"a", "alpha"}, {"empty", ""}, {"b", std::string(300, 'b')}};
};

TEST_F(Zip, FindsStoredEntries) {
  for (const bool is_wide : {false, true}) {
    for (const std::string comment : {"", "some words", "PK\x05\x06"}) {
      const std::string bytes = make_zip(pieces_, is_wide, comment);
      EXPECT_EQ(contents(bytes, "a"), "alpha");
      EXPECT_EQ(contents(bytes, "b"), std::string(300, 'b'));
      EXPECT_EQ(contents(bytes, "empty"), "");
      EXPECT_EQ(contents(bytes, "c"), "not there");
      EXPECT_EQ(contents("before" + bytes, "a", 6), "alpha");
    }
  }
  EXPECT_EQ(contents(make_zip({}), "a"), "not there");
}

TEST_F(Zip, RefusesCompressedAndEncryptedEntriesByName) {
  std::string bytes = make_zip(pieces_);
  const size_t record = bytes.find("PK\x01\x02");
  bytes[record + 10] = 8;
  EXPECT_EQ(error_of(bytes),
            "f: entry 'a': is compressed (method 8); torch.save stores entries uncompressed: save "
            "it again");
  EXPECT_EQ(contents(bytes, "b"), std::string(300, 'b'));
  bytes[record + 8] = 1;
  EXPECT_EQ(error_of(bytes), "f: entry 'a': is encrypted");
}

TEST_F(Zip, NamesDamage) {
  const std::string whole = make_zip(pieces_);
  const size_t record = whole.find("PK\x01\x02");
  const size_t end = whole.find("PK\x05\x06");
  const auto with = [&](size_t at, const std::string& bytes) {
    return error_of(std::string(whole).replace(at, bytes.size(), bytes));
  };
  EXPECT_EQ(
      error_of(""),
      "f: has no zip directory at its end; it is truncated, or not written by torch.save: copy "
      "it again");
  EXPECT_EQ(with(record, "XX"), "f: entry 0 of its zip directory is damaged");
  EXPECT_EQ(with(record + 28, little(60000, 2)), "f: entry 0 of its zip directory is damaged");
  EXPECT_EQ(with(record + 20, little(6, 4)),
            "f: entry 'a': is stored in 6 bytes, but its size is given as 5");
  EXPECT_EQ(with(record + 20, little(90000, 4) + little(90000, 4)),
            "f: entry 'a': its 90000 bytes would lie beyond the end of the data");
  EXPECT_EQ(with(record + 20, little(200, 4) + little(200, 4)),
            "f: two of its entries share byte 111 of the file");
  EXPECT_EQ(with(record + 20, std::string(8, '\xff')), "f: entry 'a': lacks its zip64 sizes");
  EXPECT_EQ(with(record + 42, little(1, 4)), "f: entry 'a': its local header is damaged");
  EXPECT_EQ(with(record + 42, little(1U << 30, 4)),
            "f: its local header of an entry would lie beyond its end; it is truncated or damaged");
  EXPECT_EQ(with(30, "z"), "f: entry 'a': its local header has another name");
  EXPECT_EQ(with(end + 4, "\x01"), "f: is one of several volumes of an archive");
  EXPECT_EQ(with(end + 10, little(4, 2)), "f: its zip directory has 3 entries, expected 4");
  EXPECT_EQ(with(end + 16, little(1U << 31, 4)),
            "f: its zip directory would lie beyond its end; it is truncated or damaged");
  EXPECT_EQ(with(end + 12, little(1U << 31, 4)),
            "f: its zip directory would take 2147483648 bytes");
  EXPECT_EQ(error_of(make_zip({{"a", "1"}, {"a", "2"}})), "f: has the entry 'a' twice");
  const std::string wide = make_zip(pieces_, true);
  const size_t locator = wide.find("PK\x06\x07");
  EXPECT_EQ(error_of(std::string(wide).replace(locator + 8, 8, std::string(8, '\xff'))),
            "f: its zip64 directory record would lie beyond its end; it is truncated or damaged");
  EXPECT_EQ(error_of(std::string(wide).replace(locator + 8, 8, little(0, 8))),
            "f: its zip64 directory record is damaged");
}

TEST_F(Zip, NamesTruncationAtEveryByte) {
  const std::string whole = make_zip(pieces_, true);
  for (size_t size = 0; size < whole.size(); ++size) {
    ASSERT_EQ(error_of(whole.substr(0, size)).substr(0, 34), "f: has no zip directory at its end");
  }
}

}  // namespace
}  // namespace fullshard::testing
