#include "fullshard/checkpoint/block_writer.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "fullshard/base/bytes.h"
#include "fullshard/checkpoint/crc32c.h"
#include "fullshard/checkpoint/work_items.h"
#include "fullshard/formats/file_handle.h"

namespace fullshard {
namespace {

constexpr int kWorkers = 2;
constexpr int64_t kItemBytes = 4 * kBlockBytes;  // of one call to the system

// One file on its way: where each span begins, and how much is left to do.
class Writing {
 public:
  explicit Writing(const BlockFile& file)
      : content_(file.content),
        handle_(FileHandle::create(file.path)),
        bytes_(file.bytes()),
        left_(num_items()),
        checksums_(static_cast<size_t>(num_blocks(bytes_))) {
    int64_t offset = 0;
    for (const auto& span : content_) {
      begins_.push_back(offset);
      offset += span.bytes;
    }
    if (bytes_ == 0) handle_.sync();
  }

  int64_t num_items() const { return (bytes_ + kItemBytes - 1) / kItemBytes; }
  const Checksums& checksums() const { return checksums_; }

  void write_item(int64_t item, std::vector<char>& staging) {
    const int64_t begin = item * kItemBytes;
    const int64_t bytes = std::min(kItemBytes, bytes_ - begin);
    const char* data = bytes_from(begin, bytes, staging);
    for (int64_t at = 0; at < bytes; at += kBlockBytes) {
      checksums_[static_cast<size_t>((begin + at) / kBlockBytes)] =
          crc32c(data + at, std::min(kBlockBytes, bytes - at));
    }
    handle_.write_at(begin, data, bytes);
    // Whoever writes the last part flushes, while the others go on with the next file.
    if (--left_ == 0) handle_.sync();
  }

 private:
  // The bytes of the file from `begin` on: where they are when that is one place, else collected.
  const char* bytes_from(int64_t begin, int64_t bytes, std::vector<char>& staging) const {
    auto span = static_cast<size_t>(std::upper_bound(begins_.begin(), begins_.end(), begin) -
                                    begins_.begin() - 1);
    const auto& first = content_[span];
    const int64_t inside = begin - begins_[span];
    if (first.data != nullptr && first.bytes - inside >= bytes) {
      return static_cast<const char*>(first.data) + inside;
    }
    staging.resize(kItemBytes);
    for (int64_t done = 0; done < bytes; ++span) {
      const int64_t from = begin + done - begins_[span];
      const int64_t part = std::min(content_[span].bytes - from, bytes - done);
      const auto* source = static_cast<const char*>(content_[span].data);
      if (part > 0 && source != nullptr) std::memcpy(staging.data() + done, source + from, part);
      if (part > 0 && source == nullptr) std::memset(staging.data() + done, 0, part);
      done += part;
    }
    return staging.data();
  }

  const std::vector<ByteSpan>& content_;
  FileHandle handle_;
  int64_t bytes_;
  std::atomic<int64_t> left_;  // items
  Checksums checksums_;
  std::vector<int64_t> begins_;
};

}  // namespace

int64_t BlockFile::bytes() const {
  int64_t total = 0;
  for (const auto& span : content) total += span.bytes;
  return total;
}

int64_t num_blocks(int64_t bytes) { return (bytes + kBlockBytes - 1) / kBlockBytes; }

std::vector<Checksums> write_block_files(const std::vector<BlockFile>& files,
                                         const std::atomic<bool>* stop) {
  struct Item {
    Writing* file;
    int64_t index;
  };
  std::vector<std::unique_ptr<Writing>> writings;
  std::vector<Item> items;
  for (const auto& file : files) {
    writings.push_back(std::make_unique<Writing>(file));
    for (int64_t i = 0; i < writings.back()->num_items(); ++i) {
      items.push_back({writings.back().get(), i});
    }
  }
  std::vector<std::vector<char>> staging(kWorkers);
  const bool finished = do_items(
      static_cast<int64_t>(items.size()), kWorkers,
      [&](int worker, int64_t i) {
        const auto& item = items[static_cast<size_t>(i)];
        item.file->write_item(item.index, staging[static_cast<size_t>(worker)]);
      },
      stop);
  std::vector<Checksums> checksums;
  if (!finished) return checksums;
  for (const auto& writing : writings) checksums.push_back(writing->checksums());
  return checksums;
}

}  // namespace fullshard
