// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/torch/torch_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "fullshard/formats/crc32.h"
#include "fullshard/formats/element_type.h"
#include "fullshard/formats/input_error.h"
#include "fullshard/formats/torch/torch_file.h"

namespace fullshard::formats {
namespace {

constexpr const char* kRoot = "archive/";

std::string_view storage_class(at::ScalarType dtype) {
  const auto name = torch_storage_name(dtype);
  check_input(name.starts_with("torch."), "torch file: unsupported dtype {}", c10::toString(dtype));
  return name.substr(std::string_view("torch.").size());
}

}  // namespace

size_t TorchLayout::add_storage(at::ScalarType dtype, int64_t numel) {
  storage_class(dtype);  // checks it
  storages_.push_back({dtype, numel});
  return storages_.size() - 1;
}

void TorchLayout::put_tensor(size_t storage, const std::vector<int64_t>& shape, int64_t first) {
  const PlannedStorage& planned = storages_[storage];
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t d = shape.size(); d > 1; --d) {
    strides[d - 2] = strides[d - 1] * std::max<int64_t>(shape[d - 1], 1);
  }
  pickle_.put_global("torch._utils", "_rebuild_tensor_v2");
  pickle_.begin_tuple();
  pickle_.begin_tuple();
  pickle_.put("storage");
  pickle_.put_global("torch", storage_class(planned.dtype));
  pickle_.put(std::to_string(storage));
  pickle_.put("cpu");
  pickle_.put(planned.numel);
  pickle_.end_tuple();
  pickle_.make_persistent();
  pickle_.put(first);
  pickle_.put_tuple(shape);
  pickle_.put_tuple(strides);
  pickle_.put(false);  // requires no gradient
  pickle_.put_empty_ordered_dict();
  pickle_.end_tuple();
  pickle_.call();
}

void TorchLayout::lay_out() {
  add_text("data.pkl", pickle_.finish());
  add_text("byteorder", "little");
  for (size_t i = 0; i < storages_.size(); ++i) {
    PlannedStorage& storage = storages_[i];
    storage.slot =
        zip_.add(fmt::format("{}data/{}", kRoot, i), storage.numel * element_bytes(storage.dtype));
  }
  add_text("version", "3\n");
}

void TorchLayout::add_text(const std::string& name, std::string bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  const size_t slot = zip_.add(kRoot + name, size);
  zip_.slots()[slot].checksum = crc32(0, bytes.data(), size);
  texts_.emplace_back(slot, std::move(bytes));
}

std::vector<std::pair<int64_t, std::string>> TorchLayout::texts() const {
  std::vector<std::pair<int64_t, std::string>> placed;
  for (const auto& [slot, text] : texts_) placed.emplace_back(zip_.slot(slot).offset, text);
  return placed;
}

}  // namespace fullshard::formats
