// SPDX-License-Identifier: Apache-2.0
#include "fullshard/stored/blocks/block_writer.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include "fullshard/base/bytes.h"
#include "fullshard/base/crc32c.h"
#include "fullshard/stored/blocks/buffer_pool.h"
#include "fullshard/stored/blocks/device_copies.h"
#include "fullshard/stored/blocks/direct_file.h"
#include "fullshard/stored/blocks/transfer_items.h"
#include "fullshard/stored/blocks/work_items.h"

namespace fullshard::stored {
namespace {

constexpr int kWorkers = 2;                 // that sum and copy
constexpr int kDepth = 3;                   // writes under way for each of them
constexpr int kCopyWorkers = 2;             // of settle()
constexpr int64_t kCopyBytes = 256 * kKiB;  // summed while it is still in the cache

}  // namespace

// One file: where each span begins, and how much is left to do.
struct BlockWriter::File {
  explicit File(const BlockFile& file)
      : content(file.content),
        path(file.path),
        bytes(file.bytes()),
        left((bytes + kWriteBytes - 1) / kWriteBytes) {
    int64_t offset = 0;
    for (const auto& span : content) {
      begins.push_back(offset);
      offset += span.bytes;
    }
  }

  // The bytes of the file from `begin` on; those of an accelerator follow later.
  void collect(int64_t begin, int64_t count, char* target) const {
    auto span = static_cast<size_t>(std::upper_bound(begins.begin(), begins.end(), begin) -
                                    begins.begin() - 1);
    for (int64_t done = 0; done < count; ++span) {
      const int64_t from = begin + done - begins[span];
      const int64_t part = std::min(content[span].bytes - from, count - done);
      if (part > 0) copy(content[span], from, part, target + done);
      done += part;
    }
  }

  bool is_on_disk(int64_t begin, int64_t count) const {
    for (size_t span = 0; span < content.size(); ++span) {
      const bool overlaps =
          begins[span] < begin + count && begin < begins[span] + content[span].bytes;
      if (overlaps && content[span].is_on_disk) return true;
    }
    return false;
  }

  static void copy(const ByteSpan& span, int64_t from, int64_t count, char* target) {
    if (span.begin_copy) {
      span.begin_copy(from, count, target);
    } else if (span.data != nullptr) {
      std::memcpy(target, static_cast<const char*>(span.data) + from, count);
    } else {
      std::memset(target, 0, count);
    }
  }

  const std::vector<ByteSpan>& content;
  std::string path;
  int64_t bytes;
  std::vector<int64_t> begins;
  std::optional<DirectOutput> output;
  std::atomic<int64_t> left;  // items
};

struct BlockWriter::Item {
  File* file = nullptr;
  Checksums* checksums = nullptr;
  int64_t begin = 0;
  int64_t bytes = 0;
  bool is_on_disk = false;                        // some of it
  bool is_taken = false;                          // the content has been looked at
  std::unique_ptr<disk::DirectBuffer> copy = {};  // made by settle() or begin_snapshot()
  DeviceCopies::Mark copied = 0;                  // of begin_snapshot()
};

BlockWriter::BlockWriter(std::vector<BlockFile> files, DeviceContent device)
    : files_(std::move(files)), device_(device), checksums_(files_.size()) {
  for (size_t i = 0; i < files_.size(); ++i) {
    writing_.push_back(std::make_unique<File>(files_[i]));
    auto* file = writing_.back().get();
    checksums_[i].resize(static_cast<size_t>(num_blocks(file->bytes)));
    for (int64_t begin = 0; begin < file->bytes; begin += kWriteBytes) {
      const int64_t bytes = std::min(kWriteBytes, file->bytes - begin);
      const bool is_on_disk = file->is_on_disk(begin, bytes);
      items_.push_back({file, &checksums_[i], begin, bytes, is_on_disk});
      num_on_disk_ += is_on_disk;
    }
  }
  // These come first, since a caller may have to wait for them.
  std::stable_partition(items_.begin(), items_.end(),
                        [](const Item& item) { return item.is_on_disk; });
}

BlockWriter::~BlockWriter() {
  try {
    if (device_.copies != nullptr) device_.copies->wait(device_.copies->mark());
  } catch (...) {  // the device has failed: no copy is in flight any more
  }
  for (auto& item : items_) {
    if (item.copy) pool_->give_back(std::move(*item.copy));
  }
}

void BlockWriter::begin_snapshot() {
  pool_ = device_.windows;
  is_snapshot_ = true;
  pool_->reserve(static_cast<int64_t>(items_.size()) - num_on_disk_);
  for (auto& item : items_) {
    if (item.is_on_disk) continue;
    item.copy = std::make_unique<disk::DirectBuffer>(pool_->take());
    item.file->collect(item.begin, item.bytes, item.copy->data());
    item.copied = device_.copies->mark();
  }
}

bool BlockWriter::run() {
  // Threads that wait for content are released, however this ends.
  const std::shared_ptr<void> end(nullptr, [this](void*) {
    const std::lock_guard lock(taken_mutex_);
    is_over_ = true;
    taken_.notify_all();
  });
  for (const auto& file : writing_) {
    file->output.emplace(file->path);
    if (file->bytes == 0) file->output->sync();
  }
  BufferPool own(kWriteBytes);
  const bool reads_device = device_.copies != nullptr && !is_snapshot_;
  const auto item = [this](int64_t i) -> Item& { return items_[static_cast<size_t>(i)]; };
  return do_transfers(
      {.num_items = static_cast<int64_t>(items_.size()),
       .num_workers = kWorkers,
       .depth = kDepth,
       .prepare = [&](int64_t i, disk::DirectBuffer& buffer) { return prepare(item(i), buffer); },
       .finish = [&](int64_t i, const disk::Transfer& transfer,
                     int64_t result) { finish(item(i), transfer, result); }},
      reads_device ? *device_.windows : own, &stop_);
}

// When it returns, the item's content is in `data`.
void BlockWriter::await_copies(Item& item, char* data) {
  if (!item.copy) {
    item.file->collect(item.begin, item.bytes, data);
    item.copied = device_.copies->mark();
  }
  device_.copies->wait(item.copied);
}

disk::Transfer BlockWriter::prepare(Item& item, disk::DirectBuffer& staging) {
  std::unique_lock gate(gate_);
  const std::shared_lock content(content_);
  gate.unlock();
  char* data = item.copy ? item.copy->data() : staging.data();
  if (device_.copies != nullptr) await_copies(item, data);
  const bool is_there = item.copy != nullptr || device_.copies != nullptr;
  for (int64_t done = 0; done < item.bytes; done += kCopyBytes) {
    const int64_t part = std::min(kCopyBytes, item.bytes - done);
    if (!is_there) item.file->collect(item.begin + done, part, data + done);
    auto& checksum = (*item.checksums)[static_cast<size_t>((item.begin + done) / kBlockBytes)];
    checksum = base::crc32c(data + done, part, checksum);
  }
  note_taken(item);
  return item.file->output->transfer(item.begin, data, item.bytes);
}

void BlockWriter::note_taken(Item& item) {
  item.is_taken = true;
  if (!item.is_on_disk) return;
  const std::lock_guard lock(taken_mutex_);
  if (--num_on_disk_ == 0) taken_.notify_all();
}

void BlockWriter::await_disk_content() {
  std::unique_lock lock(taken_mutex_);
  taken_.wait(lock, [this] { return num_on_disk_ == 0 || is_over_; });
}

void BlockWriter::finish(Item& item, const disk::Transfer& transfer, int64_t result) {
  item.file->output->complete(transfer, result);
  // The thread that writes the last part flushes, while the others continue with the next file.
  if (--item.file->left == 0) item.file->output->sync();
  if (!item.copy) return;
  pool_->give_back(std::move(*item.copy));
  item.copy.reset();
}

void BlockWriter::settle(BufferPool& pool) {
  await_disk_content();
  const std::lock_guard gate(gate_);
  const std::lock_guard content(content_);
  pool_ = &pool;
  std::vector<Item*> rest;
  for (auto& item : items_) {
    if (!item.is_taken && !item.copy && !item.is_on_disk) rest.push_back(&item);
  }
  do_items(static_cast<int64_t>(rest.size()), kCopyWorkers, [&](int, int64_t i) {
    auto& item = *rest[static_cast<size_t>(i)];
    item.copy = std::make_unique<disk::DirectBuffer>(pool.take());
    item.file->collect(item.begin, item.bytes, item.copy->data());
  });
}

int64_t BlockFile::bytes() const {
  int64_t total = 0;
  for (const auto& span : content) total += span.bytes;
  return total;
}

int64_t num_blocks(int64_t bytes) { return (bytes + kBlockBytes - 1) / kBlockBytes; }

std::vector<Checksums> write_block_files(std::vector<BlockFile> files) {
  BlockWriter writer(std::move(files));
  writer.run();
  return writer.checksums();
}

}  // namespace fullshard::stored
