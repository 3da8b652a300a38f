// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run/run_sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "fullshard/formats/crc32.h"
#include "fullshard/formats/element_span.h"
#include "fullshard/stored/side_files.h"

namespace fullshard::train {
namespace {

constexpr int64_t kMostPlaces = 16;

// Numbers from the first to the last of `size`, evenly.
std::vector<int64_t> places_in(int64_t size) {
  const int64_t count = std::min(size, kMostPlaces);
  std::vector<int64_t> places;
  for (int64_t i = 0; i < count; ++i)
    places.push_back(count == 1 ? 0 : i * (size - 1) / (count - 1));
  return places;
}

uint32_t sum_over(uint32_t before, const std::vector<int64_t>& values) {
  return formats::crc32(before, values.data(),
                        static_cast<int64_t>(values.size() * sizeof(int64_t)));
}

}  // namespace

std::string sample_of(const Dataset& data) {
  uint32_t sum = 0;
  for (const int64_t place : places_in(data.size())) {
    const TokenBatch batch = data.batch(std::vector{place}, /*seed=*/0, /*epoch=*/0);
    sum = sum_over(sum_over(sum, batch.input_ids), batch.labels);
  }
  return fmt::format("{:08x}", sum);
}

std::string sample_of_weights(const std::string& folder) {
  constexpr int64_t kMostElements = 256;
  const auto weights = stored::open_model_weights(folder);
  const auto& tensors = weights->tensors();
  uint32_t sum = 0;
  for (const int64_t place : places_in(static_cast<int64_t>(tensors.size()))) {
    const StoredTensor& tensor = tensors[static_cast<size_t>(place)];
    const int64_t count = std::min(tensor.numel(), kMostElements);
    if (count == 0 || !at::isFloatingType(tensor.dtype)) continue;
    const ElementBuffer values(count, at::kFloat);
    weights->read(tensor.name, 0, values.all());
    sum = formats::crc32(sum, values.all().data, count * static_cast<int64_t>(sizeof(float)));
  }
  return fmt::format("{:08x}", sum);
}

}  // namespace fullshard::train
