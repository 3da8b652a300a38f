// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/foreign/dcp_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "fullshard/base/bytes.h"
#include "fullshard/formats/box_runs.h"
#include "fullshard/formats/convert_kernels.h"
#include "fullshard/formats/element_type.h"
#include "fullshard/formats/input_error.h"
#include "fullshard/formats/read_elements.h"
#include "fullshard/formats/torch/torch_file.h"

namespace fullshard::formats {
namespace {

constexpr int64_t kDcpBlockBytes = kMiB;

// The tensor that torch.save wrote into an item, opened for as long as it is read: one descriptor
// for each of thousands of items would be too many.
class OpenItem {
 public:
  OpenItem(const std::string& folder, const DcpTensor& tensor, const DcpChunk& chunk,
           std::string what)
      : file_(FileHandle::open(fmt::format("{}/{}", folder, chunk.item.file)), chunk.item.offset,
              chunk.item.length),
        what_(std::move(what)) {
    const std::string where = fmt::format("{}: {}", file_.path(), what_);
    auto found = file_.tensor(file_.root(), where);
    check_input(found.has_value(), "{}: the file holds {}, expected a tensor", where,
                file_.root().describe());
    check_input(found->dtype == tensor.dtype && found->shape == chunk.sizes,
                "{}: the file holds {} of {}, the metadata says {} of {}", where,
                c10::toString(found->dtype), format_shape(found->shape),
                c10::toString(tensor.dtype), format_shape(chunk.sizes));
    place_ = std::move(*found);
  }

  void read(int64_t begin, const ElementSpan& out) const { file_.read(place_, begin, out, what_); }

  const std::shared_ptr<EntrySum>& sum() const { return place_.sum; }
  void use_sum(std::shared_ptr<EntrySum> sum) { place_.sum = std::move(sum); }
  void check() const {
    if (const auto storage = file_.storage_of(place_, what_)) storage->check();
  }

 private:
  TorchFile file_;
  std::string what_;
  TorchTensor place_;
};

// Reads the part of `out` that lies in this box; `out` begins at element `begin` of the tensor.
void read_box(const OpenItem& item, const BoxRuns& runs, int64_t begin, const ElementSpan& out) {
  const int64_t end = begin + out.numel;
  const int64_t length = runs.length();
  // Short runs are read many at a time.
  const int64_t size = element_bytes(out.dtype);
  const int64_t most = std::max<int64_t>(1, kDcpBlockBytes / std::max<int64_t>(1, length * size));
  std::optional<ElementBuffer> block;
  for (int64_t run = runs.first_after(begin); run < runs.count() && runs.begin_of(run) < end;) {
    const int64_t at = runs.begin_of(run);
    const int64_t from = std::max(at, begin);
    const int64_t to = std::min(at + length, end);
    if (most == 1 || to - from < length) {
      item.read(run * length + from - at, out.part(from - begin, to - from));
      ++run;
      continue;
    }
    int64_t count = 1;
    while (count < most && run + count < runs.count() &&
           runs.begin_of(run + count) + length <= end) {
      ++count;
    }
    if (!block) block.emplace(most * length, out.dtype);
    item.read(run * length, block->all().part(0, count * length));
    for (int64_t i = 0; i < count; ++i) {
      convert_elements(block->all().part(i * length, length),
                       out.part(runs.begin_of(run + i) - begin, length));
    }
    run += count;
  }
}

}  // namespace

DcpSource::DcpSource(std::string folder, std::shared_ptr<const DcpMetadata> metadata,
                     const std::map<std::string, std::string>& flat_names)
    : folder_(std::move(folder)), metadata_(std::move(metadata)) {
  for (const auto& [name, flat] : flat_names) {
    const DcpTensor& tensor = metadata_->tensors.at(flat);
    const std::string file = tensor.chunks.empty()
                                 ? metadata_->path
                                 : fmt::format("{}/{}", folder_, tensor.chunks[0].item.file);
    tensors_.push_back({name, tensor.shape, tensor.dtype, file});
    places_.push_back(&tensor);
  }
}

void DcpSource::read(const std::string& name, int64_t begin, ElementSpan out) const {
  const StoredTensor& stored = find_or_fail(*this, name, metadata_->path);
  check_target(stored, begin, out);
  const DcpTensor& tensor = *places_[static_cast<size_t>(&stored - tensors_.data())];
  for (const auto& chunk : tensor.chunks) {
    const BoxRuns runs(tensor.shape, chunk.offsets, chunk.sizes);
    const int64_t first = runs.first_after(begin);
    if (first == runs.count() || runs.begin_of(first) >= begin + out.numel) continue;
    OpenItem item(folder_, tensor, chunk, fmt::format("tensor '{}'", name));
    item.use_sum(kept_sum(chunk.item, item.sum()));
    read_box(item, runs, begin, out);
  }
}

std::shared_ptr<EntrySum> DcpSource::kept_sum(const DcpItem& item,
                                              std::shared_ptr<EntrySum> fresh) const {
  const std::lock_guard lock(mutex_);
  return sums_.emplace(std::pair(item.file, item.offset), std::move(fresh)).first->second;
}

void DcpSource::check_item(const DcpTensor& tensor, const DcpChunk& chunk,
                           const std::string& what) const {
  OpenItem item(folder_, tensor, chunk, what);
  item.use_sum(kept_sum(chunk.item, item.sum()));
  item.check();
}

std::vector<SummedStorage> DcpSource::storages_of(const std::string& name) const {
  const StoredTensor& stored = find_or_fail(*this, name, metadata_->path);
  const DcpTensor& tensor = *places_[static_cast<size_t>(&stored - tensors_.data())];
  std::vector<SummedStorage> storages;
  for (const auto& chunk : tensor.chunks) {
    storages.push_back({fmt::format("{}/{}", folder_, chunk.item.file), chunk.item.offset,
                        chunk.item.length, [this, &tensor, &chunk, name] {
                          check_item(tensor, chunk, fmt::format("tensor '{}'", name));
                        }});
  }
  return storages;
}

}  // namespace fullshard::formats
