// SPDX-License-Identifier: Apache-2.0
// Writes files in large blocks, several in flight at a time, with a checksum of each block.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

namespace fullshard::disk {
class DirectBuffer;
struct Transfer;
}  // namespace fullshard::disk

namespace fullshard::stored {

class BufferPool;
class DeviceCopies;

inline constexpr int64_t kBlockBytes = int64_t{1} << 20;  // covered by one checksum
inline constexpr int64_t kWriteBytes = 4 * kBlockBytes;   // of one system call
inline constexpr int64_t kPieceAlign = 4096;              // where pieces begin in a file

// Borrowed bytes; null stands for zeros.
struct ByteSpan {
  const void* data = nullptr;
  int64_t bytes = 0;
  // For bytes in an accelerator's memory: starts to copy `count` of them, from `begin` on.
  std::function<void(int64_t begin, int64_t count, char* target)> begin_copy = {};
  bool is_on_disk = false;  // mapped: it may be larger than memory
};

// Copies content from an accelerator's memory to the host's. Both must outlive the writer.
struct DeviceContent {
  DeviceCopies* copies = nullptr;  // null: there is none
  BufferPool* windows = nullptr;   // of kWriteBytes: copies go into them and are written from them
};

struct BlockFile {
  std::string path;
  std::vector<ByteSpan> content;  // one after the other

  int64_t bytes() const;
};

using Checksums = std::vector<uint32_t>;  // of a file's blocks; the last may be shorter

class BlockWriter {
 public:
  explicit BlockWriter(std::vector<BlockFile> files, DeviceContent device = {});
  ~BlockWriter();  // waits for copies in flight
  BlockWriter(const BlockWriter&) = delete;
  BlockWriter& operator=(const BlockWriter&) = delete;

  // Before run(), with content of an accelerator: starts to copy all of it, except for what is on a
  // disk, into as many windows as it fills. The content must stay until those copies have ended.
  // Without this, each worker of run() copies into the window that it writes next.
  void begin_snapshot();

  // Creates the files, writes them and flushes them to the device. In addition to the content, six
  // buffers of 4 MiB are held. Call it once. False: stop() was called.
  bool run();

  // For other threads, while run() is active:
  void stop() { stop_ = true; }
  // Returns when the content is no longer needed: what was not written yet is copied into buffers
  // of the pool (of kWriteBytes), which outlives this. Content on a disk is written first, and this
  // waits for it instead.
  void settle(BufferPool& pool);
  // Returns when content on a disk is no longer needed, or run() has ended.
  void await_disk_content();

  // After run().
  const std::vector<Checksums>& checksums() const { return checksums_; }

 private:
  struct File;
  struct Item;
  disk::Transfer prepare(Item& item, disk::DirectBuffer& staging);
  void await_copies(Item& item, char* data);
  void note_taken(Item& item);
  void finish(Item& item, const disk::Transfer& transfer, int64_t result);

  std::vector<BlockFile> files_;
  DeviceContent device_;
  bool is_snapshot_ = false;
  std::vector<std::unique_ptr<File>> writing_;
  std::vector<Item> items_;
  std::vector<Checksums> checksums_;
  BufferPool* pool_ = nullptr;
  // Shared: reading the content. Exclusive: settle(), which holds the gate meanwhile, so that it is
  // not starved.
  std::mutex gate_;
  std::shared_mutex content_;
  std::atomic<bool> stop_{false};

  std::mutex taken_mutex_;
  std::condition_variable taken_;
  int64_t num_on_disk_ = 0;  // items that have not been read
  bool is_over_ = false;     // run()
};

// The same in one call.
std::vector<Checksums> write_block_files(std::vector<BlockFile> files);

int64_t num_blocks(int64_t bytes);

}  // namespace fullshard::stored
