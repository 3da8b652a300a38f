#include "fullshard/checkpoint/snapshot.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>

#include "fullshard/base/bytes.h"
#include "fullshard/checkpoint/work_items.h"

namespace fullshard {
namespace {

constexpr int kWorkers = 2;
constexpr int64_t kCopyBytes = 4 * kMiB;

struct Copy {
  char* target;
  const void* source;  // null: zeros
  int64_t bytes;
};

void add_copies(const std::vector<ByteSpan>& content, char* target, std::vector<Copy>& copies) {
  for (const auto& span : content) {
    for (int64_t done = 0; done < span.bytes; done += kCopyBytes) {
      const auto* source = static_cast<const char*>(span.data);
      copies.push_back({target + done, source == nullptr ? nullptr : source + done,
                        std::min(kCopyBytes, span.bytes - done)});
    }
    target += span.bytes;
  }
}

}  // namespace

void Snapshot::take(std::vector<SavePlan::OwnFile>& files) {
  buffers_.resize(files.size());
  std::vector<Copy> copies;
  for (size_t i = 0; i < files.size(); ++i) {
    auto& file = files[i];
    const int64_t bytes = BlockFile{{}, file.content}.bytes();
    auto& buffer = buffers_[i];
    if (!buffer.defined() || buffer.numel() != bytes) buffer = at::empty({bytes}, at::kByte);
    add_copies(file.content, static_cast<char*>(buffer.data_ptr()), copies);
  }
  do_items(static_cast<int64_t>(copies.size()), kWorkers, [&](int, int64_t i) {
    const auto& copy = copies[static_cast<size_t>(i)];
    if (copy.source == nullptr) {
      std::memset(copy.target, 0, static_cast<size_t>(copy.bytes));
    } else {
      std::memcpy(copy.target, copy.source, static_cast<size_t>(copy.bytes));
    }
  });
  for (size_t i = 0; i < files.size(); ++i) {
    files[i].held = {buffers_[i]};
    files[i].content = {{buffers_[i].data_ptr(), buffers_[i].numel()}};
  }
}

int64_t Snapshot::bytes() const {
  int64_t total = 0;
  for (const auto& buffer : buffers_) total += buffer.numel();
  return total;
}

}  // namespace fullshard
