// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/foreign/dcp_metadata.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "fullshard/formats/element_type.h"
#include "fullshard/formats/file_handle.h"
#include "fullshard/formats/folder.h"
#include "fullshard/formats/input_error.h"
#include "fullshard/formats/pickle/pickle_fields.h"
#include "fullshard/formats/pickle/pickle_reader.h"
#include "fullshard/formats/torch/torch_file.h"

namespace fullshard::formats {
namespace {

constexpr int64_t kMostBytes = int64_t{256} << 20;

bool is_of_class(const PickleValue& value, std::string_view name) {
  return value.class_name().ends_with(name);
}

class MetadataReader {
 public:
  explicit MetadataReader(const std::string& folder)
      : folder_(folder), path_(fmt::format("{}/{}", folder, kDcpMetadata)), pickle_(read()) {}

  DcpMetadata result() {
    const PickleValue& root = pickle_.root();
    check_input(is_of_class(root, "metadata.Metadata"),
                "{}: holds {}, expected torch.distributed.checkpoint.metadata.Metadata", path_,
                root.describe());
    read_items(attribute_of(root, "storage_data", path_));
    read_entries(attribute_of(root, "state_dict_metadata", path_));
    if (const auto* data = find_attribute(root, "planner_data")) read_keys(*data);
    metadata_.path = path_;
    return std::move(metadata_);
  }

 private:
  Pickle read() const {
    const FileHandle file = FileHandle::open(path_);
    check_input(file.size() <= kMostBytes, "{}: has {} bytes, expected at most {}", path_,
                file.size(), kMostBytes);
    return read_pickle(file.read_text(0, file.size(), "pickle"), path_);
  }

  using Place = std::pair<std::string, std::vector<int64_t>>;  // name, first element of the box

  void read_items(const PickleValue& storage) {
    for (const auto& [key, value] : storage.pairs) {
      const std::string name = text_of(attribute_of(*key, "fqn", path_), path_ + ": fqn");
      const std::string where = fmt::format("{}: tensor '{}'", path_, name);
      const PickleValue* offset = find_attribute(*key, "offset");
      const bool is_box = offset != nullptr && offset->kind != PickleKind::none;
      const auto first = is_box ? shape_of(*offset, where) : std::vector<int64_t>();
      check_input(items_.emplace(Place{name, first}, read_item(*value, where)).second,
                  "{}: the box at {} occurs twice", where, format_shape(first));
    }
  }

  DcpItem read_item(const PickleValue& value, const std::string& where) {
    DcpItem item{text_of(attribute_of(value, "relative_path", where), where),
                 number_of(attribute_of(value, "offset", where), where),
                 number_of(attribute_of(value, "length", where), where)};
    check_input(is_plain_name(item.file), "{}: is stored in '{}', expected a file of this folder",
                where, item.file);
    const int64_t bytes = size_of(item.file, where);
    check_input(item.offset >= 0 && item.length >= 0 && item.offset <= bytes &&
                    item.length <= bytes - item.offset,
                "{}: is stored in bytes {} to {} of {}, which has {}; the file is truncated, or "
                "belongs to another checkpoint",
                where, item.offset, item.offset + item.length, item.file, bytes);
    return item;
  }

  int64_t size_of(const std::string& name, const std::string& where) {
    const auto known = sizes_.find(name);
    if (known != sizes_.end()) return known->second;
    const std::string path = fmt::format("{}/{}", folder_, name);
    check_input(base::is_file(path), "{}: is stored in {}, which does not exist", where, path);
    return sizes_[name] = FileHandle::open(path).size();
  }

  void read_entries(const PickleValue& entries) {
    for (const auto& [key, value] : entries.pairs) {
      const std::string name = text_of(*key, path_ + ": state_dict_metadata");
      if (is_of_class(*value, "BytesStorageMetadata")) {
        const auto item = items_.find({name, {}});
        check_input(item != items_.end(), "{}: '{}' is in no file", path_, name);
        metadata_.objects.emplace(name, item->second);
      } else {
        metadata_.tensors.emplace(name, read_tensor(name, *value));
      }
    }
  }

  DcpTensor read_tensor(const std::string& name, const PickleValue& value) const {
    const std::string where = fmt::format("{}: tensor '{}'", path_, name);
    DcpTensor tensor{shape_of(attribute_of(value, "size", where), where),
                     read_dtype(attribute_of(value, "properties", where), where)};
    for (const auto* chunk : items_of(attribute_of(value, "chunks", where), where)) {
      DcpChunk box{shape_of(attribute_of(*chunk, "offsets", where), where),
                   shape_of(attribute_of(*chunk, "sizes", where), where)};
      // A rank without elements has a box too.
      if (checked_numel(box.sizes) == 0) continue;
      const auto item = items_.find({name, box.offsets});
      check_input(item != items_.end(), "{}: its box at {} is in no file", where,
                  format_shape(box.offsets));
      box.item = item->second;
      const auto size = element_bytes(tensor.dtype);
      check_input(checked_numel(box.sizes).value_or(INT64_MAX) <= box.item.length / size,
                  "{}: its box at {} of {} does not fit into the {} bytes that hold it", where,
                  format_shape(box.offsets), format_shape(box.sizes), box.item.length);
      tensor.chunks.push_back(std::move(box));
    }
    check_cover(tensor.shape, tensor.chunks, where);
    return tensor;
  }

  // (dtype, layout, ...), or by names in files of older versions.
  static at::ScalarType read_dtype(const PickleValue& value, const std::string& where) {
    const PickleValue* state = value.state;
    const PickleValue* named = find_attribute(value, "dtype");
    if (named == nullptr && state != nullptr && !state->items.empty()) named = state->items[0];
    const auto dtype = named == nullptr ? std::nullopt : torch_dtype(*named);
    check_input(dtype.has_value(), "{}: its dtype is unknown", where);
    return *dtype;
  }

  void read_keys(const PickleValue& data) {
    for (const auto& [name, keys] : data.pairs) {
      if (name->kind != PickleKind::text || keys->kind != PickleKind::tuple) continue;
      std::vector<std::string> path;
      for (const auto* key : keys->items) {
        const bool is_text = key->kind == PickleKind::text;
        path.push_back(is_text ? key->text : std::to_string(number_in(*key).value_or(0)));
      }
      metadata_.keys.emplace(name->text, std::move(path));
    }
  }

  std::string folder_;
  std::string path_;
  Pickle pickle_;
  DcpMetadata metadata_;
  std::map<Place, DcpItem> items_;
  std::map<std::string, int64_t> sizes_;
};

bool overlap(const DcpChunk& left, const DcpChunk& right) {
  for (size_t d = 0; d < left.sizes.size(); ++d) {
    if (left.offsets[d] + left.sizes[d] <= right.offsets[d]) return false;
    if (right.offsets[d] + right.sizes[d] <= left.offsets[d]) return false;
  }
  return true;
}

void check_inside(const std::vector<int64_t>& shape, const DcpChunk& chunk,
                  const std::string& where) {
  bool fits = chunk.offsets.size() == shape.size() && chunk.sizes.size() == shape.size();
  for (size_t d = 0; fits && d < shape.size(); ++d) {
    fits = chunk.offsets[d] >= 0 && chunk.sizes[d] >= 0 && chunk.offsets[d] <= shape[d] &&
           chunk.sizes[d] <= shape[d] - chunk.offsets[d];
  }
  check_input(fits, "{}: its box at {} of {} is not inside its shape {}", where,
              format_shape(chunk.offsets), format_shape(chunk.sizes), format_shape(shape));
}

}  // namespace

DcpMetadata read_dcp_metadata(const std::string& folder) { return MetadataReader(folder).result(); }

void check_cover(const std::vector<int64_t>& shape, const std::vector<DcpChunk>& chunks,
                 const std::string& where) {
  const auto numel = checked_numel(shape);
  check_input(numel.has_value(), "{}: its shape {} is impossible", where, format_shape(shape));
  int64_t covered = 0;
  for (const auto& chunk : chunks) {
    check_inside(shape, chunk, where);
    covered += *checked_numel(chunk.sizes);
  }
  // Sorted by their first dimension, so that a box is compared with its neighbours only.
  std::vector<const DcpChunk*> sorted;
  for (const auto& chunk : chunks) sorted.push_back(&chunk);
  std::ranges::sort(sorted, {}, &DcpChunk::offsets);
  for (size_t i = 0; i < sorted.size() && !shape.empty(); ++i) {
    const int64_t end = sorted[i]->offsets[0] + sorted[i]->sizes[0];
    for (size_t j = i + 1; j < sorted.size() && sorted[j]->offsets[0] < end; ++j) {
      check_input(!overlap(*sorted[i], *sorted[j]), "{}: its boxes at {} and {} overlap", where,
                  format_shape(sorted[i]->offsets), format_shape(sorted[j]->offsets));
    }
  }
  check_input(covered == *numel, "{}: has {} elements, the files hold only {}", where, *numel,
              covered);
}

}  // namespace fullshard::formats
