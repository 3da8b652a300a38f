// SPDX-License-Identifier: Apache-2.0
#include "fullshard/stored/blocks/block_reader.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <span>

#include "fullshard/base/crc32c.h"
#include "fullshard/formats/convert_kernels.h"
#include "fullshard/formats/input_error.h"
#include "fullshard/stored/blocks/buffer_pool.h"
#include "fullshard/stored/blocks/direct_file.h"
#include "fullshard/stored/blocks/transfer_items.h"

namespace fullshard::stored {
namespace {

constexpr int64_t kMostBlocks = kReadBytes / kBlockBytes;
constexpr size_t kMostOpen = 64;  // files

// Blocks [first, end) of a file.
struct Item {
  int file = 0;
  int64_t first = 0;
  int64_t end = 0;
};

class Reading {
 public:
  explicit Reading(WantedFile wanted) : wanted_(std::move(wanted)), input_(wanted_.path) {
    formats::check_input(
        input_.size() == wanted_.bytes,
        "{}: has {} bytes, the checkpoint's manifest says {}; the file is {}: copy it "
        "again or use another checkpoint",
        wanted_.path, input_.size(), wanted_.bytes,
        input_.size() < wanted_.bytes ? "truncated" : "not the one that was written");
    std::sort(wanted_.ranges.begin(), wanted_.ranges.end(),
              [](const WantedRange& a, const WantedRange& b) { return a.offset < b.offset; });
  }

  void add_items(int file, std::vector<Item>& items) const {
    const size_t before = items.size();
    int64_t next = 0;  // blocks before it are on the list
    for (const auto& range : wanted_.ranges) {
      if (range.bytes() == 0) continue;
      const int64_t end = (range.offset + range.bytes() - 1) / kBlockBytes + 1;
      for (next = std::max(next, range.offset / kBlockBytes); next < end; ++next) {
        const bool follows = items.size() > before && items.back().end == next;
        if (follows && next - items.back().first < kMostBlocks) {
          ++items.back().end;
        } else {
          items.push_back({file, next, next + 1});
        }
      }
    }
  }

  disk::Transfer prepare(const Item& item, disk::DirectBuffer& buffer) const {
    return input_.transfer(item.first * kBlockBytes, buffer.data(), bytes_of(item));
  }

  // Verifies what was read and copies it to its targets. Returns the bytes.
  int64_t finish(const Item& item, const disk::Transfer& transfer, int64_t result) const {
    input_.complete(transfer, result, bytes_of(item), names_in(item.first));
    for (int64_t block = item.first; block < item.end; ++block) {
      char* data = transfer.data + (block - item.first) * kBlockBytes;
      check_block(block, data);
      spread(block, data);
    }
    return bytes_of(item);
  }

 private:
  int64_t bytes_of(const Item& item) const {
    return end_of(item.end - 1) - item.first * kBlockBytes;
  }
  int64_t end_of(int64_t block) const { return std::min((block + 1) * kBlockBytes, wanted_.bytes); }

  template <class Use>
  void for_each_range_in(int64_t block, const Use& use) const {
    const int64_t begin = block * kBlockBytes;
    auto range = std::partition_point(
        wanted_.ranges.begin(), wanted_.ranges.end(),
        [&](const WantedRange& other) { return other.offset + other.bytes() <= begin; });
    for (; range != wanted_.ranges.end() && range->offset < end_of(block); ++range) {
      if (range->bytes() > 0) use(*range);
    }
  }

  std::string names_in(int64_t block) const {
    std::string names;
    int count = 0;
    for_each_range_in(block, [&](const WantedRange& range) {
      if (count++ < 3) names += (names.empty() ? "" : ", ") + range.what;
    });
    return count > 3 ? fmt::format("{} and {} more", names, count - 3) : names;
  }

  void check_block(int64_t block, const char* data) const {
    const int64_t begin = block * kBlockBytes;
    const uint32_t found = base::crc32c(data, end_of(block) - begin);
    const uint32_t expected = wanted_.checksums->at(static_cast<size_t>(block));
    formats::check_input(
        found == expected,
        "{}: bytes {} to {}, with {}: the checksum is {:08x}, expected {:08x}; the file "
        "is damaged: copy it again or use another checkpoint",
        wanted_.path, begin, end_of(block), names_in(block), found, expected);
  }

  void spread(int64_t block, char* data) const {
    const int64_t block_begin = block * kBlockBytes;
    for_each_range_in(block, [&](const WantedRange& range) {
      const int64_t begin = std::max(range.offset, block_begin);
      const int64_t end = std::min(range.offset + range.bytes(), end_of(block));
      const int64_t size = element_bytes(range.stored);
      const int64_t first = (begin - range.offset) / size;
      const ElementSpan values(data + begin - block_begin, (end - begin) / size, range.stored);
      if (range.put) {
        range.put(first, values);
      } else {
        formats::convert_elements(values, range.target.part(first, values.numel));
      }
    });
  }

  WantedFile wanted_;
  DirectInput input_;
};

// Several files at a time, since a process may not have many thousands open.
int64_t read_together(std::span<WantedFile> files, const BlockReadOptions& options,
                      BufferPool& pool) {
  std::vector<std::unique_ptr<Reading>> readings;
  std::vector<Item> items;
  for (auto& file : files) {
    readings.push_back(std::make_unique<Reading>(std::move(file)));
    readings.back()->add_items(static_cast<int>(readings.size()) - 1, items);
  }
  std::atomic<int64_t> bytes{0};
  const auto item = [&](int64_t i) -> const Item& { return items[static_cast<size_t>(i)]; };
  const auto reading = [&](int64_t i) -> const Reading& {
    return *readings[static_cast<size_t>(item(i).file)];
  };
  do_transfers(
      {.num_items = static_cast<int64_t>(items.size()),
       .num_workers = options.num_workers,
       .depth = options.depth,
       .prepare = [&](int64_t i,
                      disk::DirectBuffer& buffer) { return reading(i).prepare(item(i), buffer); },
       .finish = [&](int64_t i, const disk::Transfer& transfer,
                     int64_t result) { bytes += reading(i).finish(item(i), transfer, result); }},
      pool);
  return bytes;
}

}  // namespace

int64_t WantedRange::bytes() const { return target.numel * element_bytes(stored); }

int64_t read_block_files(std::vector<WantedFile> files, const BlockReadOptions& options) {
  BufferPool own(kReadBytes);
  BufferPool& pool = options.buffers != nullptr ? *options.buffers : own;
  int64_t bytes = 0;
  for (size_t first = 0; first < files.size(); first += kMostOpen) {
    const size_t count = std::min(kMostOpen, files.size() - first);
    bytes += read_together(std::span(files).subspan(first, count), options, pool);
  }
  return bytes;
}

}  // namespace fullshard::stored
