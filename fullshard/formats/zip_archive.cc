// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/zip_archive.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "fullshard/formats/input_error.h"

namespace fullshard::formats {
namespace {

// Sizes and signatures of the format's records (PKWARE's APPNOTE 6.3).
constexpr uint32_t kEnd = 0x06054b50, kEnd64 = 0x06064b50, kLocator64 = 0x07064b50;
constexpr uint32_t kCentral = 0x02014b50, kLocal = 0x04034b50;
constexpr int64_t kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20;
constexpr int64_t kCentralBytes = 46, kLocalBytes = 30;
constexpr int64_t kMostComment = 0xFFFF;
constexpr int64_t kMostDirectoryBytes = int64_t{1} << 28;
constexpr uint64_t kElsewhere32 = 0xFFFFFFFF;  // the value is in the zip64 field

template <class Number>
uint64_t number_at(std::string_view bytes, int64_t offset) {
  Number number = 0;
  std::memcpy(&number, bytes.data() + offset, sizeof number);
  return number;
}
constexpr auto u16 = number_at<uint16_t>;
constexpr auto u32 = number_at<uint32_t>;
constexpr auto u64 = number_at<uint64_t>;

struct Directory {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t num_entries = 0;
};

// One entry of the directory; offsets count from the archive's begin.
struct Listed {
  std::string name;
  uint64_t flags = 0;
  uint64_t method = 0;
  uint64_t bytes = 0;
  uint64_t local = 0;
  uint64_t checksum = 0;
};

class Reader {
 public:
  Reader(const FileHandle& file, int64_t begin, int64_t length)
      : file_(file), begin_(begin), length_(length) {}

  std::map<std::string, ZipEntry> read() const {
    const Directory directory = find_directory();
    std::map<std::string, ZipEntry> entries;
    for (const auto& listed : read_directory(directory)) {
      const ZipEntry entry = locate(listed, directory);
      check_input(entries.emplace(listed.name, entry).second, "{}: has the entry '{}' twice",
                  path(), listed.name);
    }
    check_apart(entries);
    return entries;
  }

 private:
  const std::string& path() const { return file_.path(); }

  std::string text(uint64_t offset, int64_t bytes, const char* what) const {
    check_input(
        offset <= static_cast<uint64_t>(length_) && bytes <= length_ - static_cast<int64_t>(offset),
        "{}: its {} would lie beyond its end; it is truncated or damaged", path(), what);
    return file_.read_text(begin_ + static_cast<int64_t>(offset), bytes, what);
  }

  Directory find_directory() const {
    const int64_t tail_bytes = std::min(length_, kEndBytes + kMostComment);
    const int64_t tail_begin = length_ - tail_bytes;
    const std::string tail = text(static_cast<uint64_t>(tail_begin), tail_bytes, "end of archive");
    for (int64_t at = tail_bytes - kEndBytes; at >= 0; --at) {
      const auto comment = static_cast<uint64_t>(tail_bytes - at - kEndBytes);
      if (u32(tail, at) != kEnd || u16(tail, at + 20) != comment) continue;
      if (const auto wide = find_directory64(tail_begin + at)) return *wide;
      check_input(u16(tail, at + 4) == 0 && u16(tail, at + 6) == 0,
                  "{}: is one of several volumes of an archive", path());
      return {u32(tail, at + 16), u32(tail, at + 12), u16(tail, at + 10)};
    }
    fail_input(
        "{}: has no zip directory at its end; it is truncated, or not written by torch.save: "
        "copy it again",
        path());
  }

  std::optional<Directory> find_directory64(int64_t end) const {
    if (end < kLocatorBytes) return std::nullopt;
    const auto locator = text(static_cast<uint64_t>(end - kLocatorBytes), kLocatorBytes, "locator");
    if (u32(locator, 0) != kLocator64) return std::nullopt;
    const std::string record = text(u64(locator, 8), kEnd64Bytes, "zip64 directory record");
    check_input(u32(record, 0) == kEnd64, "{}: its zip64 directory record is damaged", path());
    return Directory{u64(record, 48), u64(record, 40), u64(record, 32)};
  }

  std::vector<Listed> read_directory(const Directory& directory) const {
    check_input(directory.bytes <= static_cast<uint64_t>(kMostDirectoryBytes),
                "{}: its zip directory would take {} bytes", path(), directory.bytes);
    const std::string bytes =
        text(directory.offset, static_cast<int64_t>(directory.bytes), "zip directory");
    std::vector<Listed> all;
    std::string_view rest = bytes;
    while (!rest.empty()) {
      check_input(static_cast<int64_t>(rest.size()) >= kCentralBytes && u32(rest, 0) == kCentral,
                  "{}: entry {} of its zip directory is damaged", path(), all.size());
      const auto size =
          kCentralBytes + static_cast<int64_t>(u16(rest, 28) + u16(rest, 30) + u16(rest, 32));
      check_input(size <= static_cast<int64_t>(rest.size()),
                  "{}: entry {} of its zip directory is damaged", path(), all.size());
      all.push_back(parse_listed(rest));
      rest.remove_prefix(static_cast<size_t>(size));
    }
    check_input(all.size() == directory.num_entries,
                "{}: its zip directory has {} entries, expected {}", path(), all.size(),
                directory.num_entries);
    return all;
  }

  Listed parse_listed(std::string_view record) const {
    Listed entry{std::string(record.substr(kCentralBytes, u16(record, 28))),
                 u16(record, 8),
                 u16(record, 10),
                 u32(record, 20),
                 u32(record, 42),
                 u32(record, 16)};
    std::string_view extra = record.substr(kCentralBytes + u16(record, 28), u16(record, 30));
    std::string_view wide = zip64_field(extra);
    // The field holds those values, in this order, that the record itself leaves out.
    const auto widen = [&](uint64_t value) {
      if (value != kElsewhere32) return value;
      check_input(wide.size() >= 8, "{}: entry '{}': lacks its zip64 sizes", path(), entry.name);
      const uint64_t wider = u64(wide, 0);
      wide.remove_prefix(8);
      return wider;
    };
    const uint64_t unpacked = widen(u32(record, 24));
    entry.bytes = widen(entry.bytes);
    entry.local = widen(entry.local);
    check_input(entry.method != 0 || entry.bytes == unpacked,
                "{}: entry '{}': is stored in {} bytes, but its size is given as {}", path(),
                entry.name, entry.bytes, unpacked);
    return entry;
  }

  static std::string_view zip64_field(std::string_view extra) {
    while (extra.size() >= 4) {
      const std::string_view field = extra.substr(4, u16(extra, 2));
      if (u16(extra, 0) == 1) return field;
      extra.remove_prefix(4 + field.size());
    }
    return {};
  }

  // Where the data lie: after the entry's local header, and before the directory.
  ZipEntry locate(const Listed& listed, const Directory& directory) const {
    const std::string header = text(listed.local, kLocalBytes, "local header of an entry");
    check_input(u32(header, 0) == kLocal, "{}: entry '{}': its local header is damaged", path(),
                listed.name);
    const auto name_bytes = static_cast<int64_t>(u16(header, 26));
    const std::string name =
        text(listed.local + kLocalBytes, name_bytes, "local header of an entry");
    check_input(name == listed.name, "{}: entry '{}': its local header has another name", path(),
                listed.name);
    const uint64_t offset =
        listed.local + kLocalBytes + static_cast<uint64_t>(name_bytes) + u16(header, 28);
    check_input(offset <= directory.offset && listed.bytes <= directory.offset - offset,
                "{}: entry '{}': its {} bytes would lie beyond the end of the data", path(),
                listed.name, listed.bytes);
    return {begin_ + static_cast<int64_t>(offset), static_cast<int64_t>(listed.bytes),
            static_cast<int64_t>(listed.method), (listed.flags & 1) != 0,
            static_cast<uint32_t>(listed.checksum)};
  }

  void check_apart(const std::map<std::string, ZipEntry>& entries) const {
    std::vector<std::pair<int64_t, int64_t>> ranges;
    for (const auto& [name, entry] : entries) {
      if (entry.bytes > 0) ranges.emplace_back(entry.offset, entry.offset + entry.bytes);
    }
    std::ranges::sort(ranges);
    for (size_t i = 1; i < ranges.size(); ++i) {
      check_input(ranges[i - 1].second <= ranges[i].first,
                  "{}: two of its entries share byte {} of the file", path(), ranges[i].first);
    }
  }

  const FileHandle& file_;
  int64_t begin_;
  int64_t length_;
};

}  // namespace

ZipArchive::ZipArchive(const FileHandle& file, int64_t begin, int64_t length)
    : path_(file.path()), entries_(Reader(file, begin, length).read()) {}

bool ZipArchive::has_checksums() const {
  return std::ranges::any_of(entries_,
                             [](const auto& named) { return named.second.checksum != 0; });
}

const ZipEntry* ZipArchive::find(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return nullptr;
  check_input(!found->second.is_encrypted, "{}: entry '{}': is encrypted", path_, name);
  check_input(found->second.method == 0,
              "{}: entry '{}': is compressed (method {}); torch.save stores entries uncompressed: "
              "save it again",
              path_, name, found->second.method);
  return &found->second;
}

}  // namespace fullshard::formats
