// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/torch/interval_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "fullshard/formats/element_type.h"
#include "fullshard/formats/input_error.h"
#include "fullshard/formats/read_elements.h"

namespace fullshard::formats {

void IntervalSource::add(std::string name, std::vector<int64_t> shape,
                         const std::vector<FileInterval>& intervals) {
  check_input(!intervals.empty(), "tensor '{}': no file holds a part of it", name);
  const std::string file = intervals.front().file->path();
  const at::ScalarType dtype = intervals.front().tensor->dtype;
  const auto numel = checked_numel(shape);
  check_input(numel.has_value(), "{}: tensor '{}': its shape {} is impossible", file, name,
              format_shape(shape));
  Pieces pieces;
  int64_t begin = 0;
  for (const auto& interval : intervals) {
    check_input(interval.tensor->dtype == dtype, "{}: tensor '{}': has the dtype {}, but {} in {}",
                interval.file->path(), name, c10::toString(interval.tensor->dtype),
                c10::toString(dtype), file);
    const int64_t take = std::min(interval.numel, *numel - begin);
    if (take > 0) pieces.push_back({begin, interval});
    begin += std::max<int64_t>(take, 0);
  }
  check_input(begin == *numel, "{}: tensor '{}': has {} elements, the files hold only {}", file,
              name, *numel, begin);
  insert({std::move(name), std::move(shape), dtype, file},
         std::make_shared<const Pieces>(std::move(pieces)));
}

void IntervalSource::add_name(const std::string& name, const std::string& same_as) {
  const StoredTensor* tensor = find(same_as);
  if (tensor == nullptr || find(name) != nullptr) return;
  StoredTensor again = *tensor;
  again.name = name;
  insert(std::move(again), pieces_[static_cast<size_t>(tensor - tensors_.data())]);
}

void IntervalSource::insert(StoredTensor tensor, std::shared_ptr<const Pieces> pieces) {
  const auto place = std::ranges::lower_bound(tensors_, tensor.name, {}, &StoredTensor::name);
  check_input(place == tensors_.end() || place->name != tensor.name,
              "{}: has the tensor '{}' twice", tensor.file, tensor.name);
  pieces_.insert(pieces_.begin() + (place - tensors_.begin()), std::move(pieces));
  tensors_.insert(place, std::move(tensor));
}

void IntervalSource::read(const std::string& name, int64_t begin, ElementSpan out) const {
  const std::string place = tensors_.empty() ? "checkpoint" : tensors_.front().file;
  const StoredTensor& tensor = find_or_fail(*this, name, place);
  check_target(tensor, begin, out);
  const Pieces& pieces = *pieces_[static_cast<size_t>(&tensor - tensors_.data())];
  auto piece = std::ranges::upper_bound(pieces, begin, {}, &Piece::begin);
  if (piece != pieces.begin()) --piece;
  const std::string what = fmt::format("tensor '{}'", name);
  for (int64_t done = 0; done < out.numel; ++piece) {
    const int64_t inside = begin + done - piece->begin;
    const int64_t count = std::min(out.numel - done, piece->interval.numel - inside);
    piece->interval.file->read(*piece->interval.tensor, piece->interval.first + inside,
                               out.part(done, count), what);
    done += count;
  }
}

std::vector<SummedStorage> IntervalSource::storages_of(const std::string& name) const {
  const StoredTensor* tensor = find(name);
  std::vector<SummedStorage> storages;
  if (tensor == nullptr) return storages;
  for (const auto& piece : *pieces_[static_cast<size_t>(tensor - tensors_.data())]) {
    const auto& [file, held, first, numel] = piece.interval;
    auto storage = file->storage_of(*held, fmt::format("tensor '{}'", name));
    if (storage) storages.push_back(std::move(*storage));
  }
  return storages;
}

}  // namespace fullshard::formats
