// SPDX-License-Identifier: Apache-2.0
#include "fullshard/stored/weights_layout.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "fullshard/formats/element_type.h"
#include "fullshard/formats/safetensors/safetensors_header.h"
#include "fullshard/formats/torch/torch_layout.h"

namespace fullshard::stored {
namespace {

FilePart text_part(int64_t begin, std::string text) {
  const auto bytes = static_cast<int64_t>(text.size());
  return {.begin = begin, .bytes = bytes, .text = std::move(text)};
}

std::unique_ptr<formats::TorchLayout> plan_torch(const std::vector<TensorPlan>& tensors,
                                                 const FurtherNames& others) {
  auto layout = std::make_unique<formats::TorchLayout>();
  layout->pickle().begin_dict();
  for (const auto& tensor : tensors) {
    const size_t storage = layout->add_storage(tensor.dtype, *checked_numel(tensor.shape));
    layout->pickle().put(tensor.name);
    layout->put_tensor(storage, tensor.shape, 0);
    const auto more = others.find(tensor.name);
    if (more == others.end()) continue;
    for (const auto& name : more->second) {
      layout->pickle().put(name);
      layout->put_tensor(storage, tensor.shape, 0);
    }
  }
  layout->pickle().end_dict();
  layout->lay_out();
  return layout;
}

// They contain checksums: zeros at first, the real ones later.
std::vector<FilePart> headers_and_directory(formats::ZipLayout& zip) {
  std::vector<FilePart> parts;
  for (const auto& slot : zip.slots()) parts.push_back(text_part(slot.header, slot.header_bytes()));
  parts.push_back(text_part(zip.directory_offset(), zip.directory_bytes()));
  return parts;
}

}  // namespace

WeightsLayout safetensors_layout(const std::vector<TensorPlan>& tensors, const std::string& path) {
  const formats::SafetensorsHeader header = formats::lay_out_safetensors(tensors, path);
  WeightsLayout layout;
  layout.parts.push_back(text_part(0, formats::format_safetensors_header(header)));
  for (const auto& entry : header.entries) {
    layout.parts.push_back({.begin = entry.begin,
                            .bytes = entry.bytes(),
                            .tensor = entry.name,
                            .dtype = entry.type->dtype});
  }
  return layout;
}

WeightsLayout torch_layout(const std::vector<TensorPlan>& tensors, const FurtherNames& others) {
  const std::shared_ptr<formats::TorchLayout> torch = plan_torch(tensors, others);
  WeightsLayout layout;
  layout.parts = headers_and_directory(torch->zip());
  for (auto& [offset, text] : torch->texts()) {
    layout.parts.push_back(text_part(offset, std::move(text)));
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    const formats::ZipSlot& slot = torch->slot_of(i);
    layout.parts.push_back({.begin = slot.offset,
                            .bytes = slot.bytes,
                            .tensor = tensors[i].name,
                            .dtype = tensors[i].dtype});
  }
  // An empty tensor comes before what begins at the same byte.
  std::ranges::stable_sort(
      layout.parts, {}, [](const FilePart& part) { return std::pair(part.begin, part.bytes > 0); });
  std::map<std::string, size_t> slots;
  for (size_t i = 0; i < tensors.size(); ++i) slots[tensors[i].name] = torch->storages()[i].slot;
  std::vector<std::pair<size_t, size_t>> sums_for;  // part, slot
  for (size_t i = 0; i < layout.parts.size(); ++i) {
    const auto& tensor = layout.parts[i].tensor;
    if (!tensor.empty()) sums_for.emplace_back(i, slots.at(tensor));
  }
  layout.closing = [torch, sums_for](const std::vector<uint32_t>& sums) {
    for (const auto& [part, slot] : sums_for) torch->zip().slots()[slot].checksum = sums[part];
    return headers_and_directory(torch->zip());
  };
  return layout;
}

}  // namespace fullshard::stored
