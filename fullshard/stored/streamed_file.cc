// SPDX-License-Identifier: Apache-2.0
#include "fullshard/stored/streamed_file.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "fullshard/formats/crc32.h"
#include "fullshard/formats/element_type.h"
#include "fullshard/formats/file_handle.h"
#include "fullshard/formats/input_error.h"
#include "fullshard/formats/replace_file.h"

namespace fullshard::stored {
namespace {

std::string checked_part(const std::string& path, int64_t bytes) {
  formats::check_room(path, bytes);
  return path + ".part";
}

}  // namespace

StreamedFile::StreamedFile(std::string path, WeightsLayout layout)
    : path_(std::move(path)),
      part_path_(checked_part(path_, layout.bytes())),
      layout_(std::move(layout)),
      sums_(layout_.parts.size()),
      output_(part_path_) {
  for (size_t i = 0; i < sums_.size() && layout_.closing; ++i) {
    const FilePart& part = layout_.parts[i];
    if (part.bytes == 0) continue;
    const int64_t last = (part.begin + part.bytes - 1) / kStreamBytes;
    sums_[i].resize(static_cast<size_t>(last - part.begin / kStreamBytes + 1));
  }
}

StreamedFile::~StreamedFile() {
  if (!is_finished_) ::unlink(part_path_.c_str());
}

int64_t StreamedFile::num_blocks() const {
  return (layout_.bytes() + kStreamBytes - 1) / kStreamBytes;
}

void StreamedFile::write_block(int64_t block, const TensorSource& source,
                               disk::DirectBuffer& buffer) {
  const int64_t begin = block * kStreamBytes;
  const int64_t end = std::min(begin + kStreamBytes, layout_.bytes());
  buffer.reserve(kStreamBytes);
  const auto first = std::ranges::partition_point(
      layout_.parts, [&](const FilePart& part) { return part.begin + part.bytes <= begin; });
  for (auto part = first; part != layout_.parts.end() && part->begin < end; ++part) {
    const int64_t from = std::max(begin, part->begin);
    const int64_t to = std::min(end, part->begin + part->bytes);
    if (from >= to) continue;
    const auto index = static_cast<size_t>(part - layout_.parts.begin());
    char* target = buffer.data() + (from - begin);
    fill(index, from - part->begin, to - part->begin, source, target);
    if (sums_[index].empty()) continue;
    const int64_t place = block - part->begin / kStreamBytes;
    sums_[index][static_cast<size_t>(place)] = formats::crc32(0, target, to - from);
  }
  output_.write_at(begin, buffer.data(), end - begin);
}

// Elements begin at multiples of their size in a file, so that no block splits one.
void StreamedFile::fill(size_t index, int64_t begin, int64_t end, const TensorSource& source,
                        char* target) {
  const FilePart& part = layout_.parts[index];
  if (part.tensor.empty()) {
    std::memcpy(target, part.text.data() + begin, static_cast<size_t>(end - begin));
    return;
  }
  const int64_t size = element_bytes(part.dtype);
  source.read(part.tensor, begin / size, ElementSpan(target, (end - begin) / size, part.dtype));
}

void StreamedFile::write_closing() {
  std::vector<uint32_t> whole;
  for (size_t i = 0; i < sums_.size(); ++i) {
    uint32_t sum = 0;
    int64_t at = layout_.parts[i].begin;
    const int64_t end = at + layout_.parts[i].bytes;
    for (const uint32_t next : sums_[i]) {
      const int64_t stop = std::min((at / kStreamBytes + 1) * kStreamBytes, end);
      sum = formats::crc32_of_both(sum, next, stop - at);
      at = stop;
    }
    whole.push_back(sum);
  }
  for (const auto& part : layout_.closing(whole)) {
    output_.write_at(part.begin, part.text.data(), part.bytes);
  }
}

void StreamedFile::finish() {
  if (layout_.closing) write_closing();
  output_.sync();
  formats::rename_into_place(part_path_, path_);
  is_finished_ = true;
}

}  // namespace fullshard::stored
