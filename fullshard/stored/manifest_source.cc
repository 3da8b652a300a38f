// SPDX-License-Identifier: Apache-2.0
#include "fullshard/stored/manifest_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "fullshard/formats/read_elements.h"
#include "fullshard/stored/blocks/block_reader.h"

namespace fullshard::stored {

ManifestSource::ManifestSource(std::string folder, std::shared_ptr<const Manifest> manifest,
                               std::string state)
    : folder_(std::move(folder)),
      manifest_(std::move(manifest)),
      state_(std::move(state)),
      buffers_(kReadBytes) {
  struct Found {
    const ManifestTensor* tensor;
    const StoredValues* values;
  };
  std::map<std::string, Found> sorted;
  for (const auto& tensor : manifest_->tensors) {
    if (state_.empty()) {
      for (const auto& name : tensor.names) sorted.insert({name, {&tensor, &tensor.weights}});
    } else if (const auto values = tensor.states.find(state_); values != tensor.states.end()) {
      sorted.insert({tensor.names.front(), {&tensor, &values->second}});
    }
  }
  for (const auto& [name, found] : sorted) {
    const auto& intervals = found.values->intervals;
    const std::string file = intervals.empty()
                                 ? std::string(kManifestName)
                                 : manifest_->files[static_cast<size_t>(intervals[0].file)].name;
    tensors_.push_back(
        {name, found.tensor->shape, found.values->dtype, fmt::format("{}/{}", folder_, file)});
    values_.push_back(found.values);
  }
}

void ManifestSource::read(const std::string& name, int64_t begin, ElementSpan out) const {
  const StoredTensor& tensor = formats::find_or_fail(*this, name, folder_);
  formats::check_target(tensor, begin, out);
  const StoredValues& values = *values_[static_cast<size_t>(&tensor - tensors_.data())];
  const int64_t end = begin + out.numel;
  const auto size = element_bytes(values.dtype);
  const std::string what =
      state_.empty() ? fmt::format("'{}'", name) : fmt::format("{} of '{}'", state_, name);
  std::vector<WantedFile> wanted;
  for (const auto& interval : values.intervals) {
    const int64_t from = std::max(begin, interval.begin);
    const int64_t to = std::min(end, interval.end);
    if (from >= to) continue;
    const StoredFile& file = manifest_->files[static_cast<size_t>(interval.file)];
    check_file(file, folder_);
    WantedRange range{interval.offset + (from - interval.begin) * size, values.dtype,
                      out.part(from - begin, to - from), what};
    wanted.push_back(
        {fmt::format("{}/{}", folder_, file.name), file.bytes, &file.checksums, {range}});
  }
  // Callers that read block after block have their own threads.
  BlockReadOptions options{.buffers = &buffers_};
  if (out.bytes() <= 4 * kReadBytes) options.num_workers = options.depth = 1;
  read_block_files(std::move(wanted), options);
}

}  // namespace fullshard::stored
