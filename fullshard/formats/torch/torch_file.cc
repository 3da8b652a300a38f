// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/torch/torch_file.h"

#include <algorithm>
#include <array>
#include <utility>

#include "fullshard/base/bytes.h"
#include "fullshard/formats/crc32.h"
#include "fullshard/formats/element_type.h"
#include "fullshard/formats/input_error.h"
#include "fullshard/formats/read_elements.h"
#include "fullshard/formats/torch/read_strided.h"
#include "fullshard/formats/torch/storage_owner.h"

namespace fullshard::formats {
namespace {

struct NamedDtype {
  std::string_view storage;  // "" where torch has no class of its own
  std::string_view dtype;
  at::ScalarType type;
};

constexpr std::array kDtypes = {
    NamedDtype{"torch.DoubleStorage", "torch.float64", at::kDouble},
    NamedDtype{"torch.FloatStorage", "torch.float32", at::kFloat},
    NamedDtype{"torch.HalfStorage", "torch.float16", at::kHalf},
    NamedDtype{"torch.BFloat16Storage", "torch.bfloat16", at::kBFloat16},
    NamedDtype{"torch.LongStorage", "torch.int64", at::kLong},
    NamedDtype{"torch.IntStorage", "torch.int32", at::kInt},
    NamedDtype{"torch.ShortStorage", "torch.int16", at::kShort},
    NamedDtype{"torch.CharStorage", "torch.int8", at::kChar},
    NamedDtype{"torch.ByteStorage", "torch.uint8", at::kByte},
    NamedDtype{"torch.BoolStorage", "torch.bool", at::kBool},
    NamedDtype{"torch.ComplexFloatStorage", "torch.complex64", at::ScalarType::ComplexFloat},
    NamedDtype{"torch.ComplexDoubleStorage", "torch.complex128", at::ScalarType::ComplexDouble},
    NamedDtype{"", "torch.uint16", at::ScalarType::UInt16},
    NamedDtype{"", "torch.uint32", at::ScalarType::UInt32},
    NamedDtype{"", "torch.uint64", at::ScalarType::UInt64},
    NamedDtype{"", "torch.float8_e4m3fn", at::ScalarType::Float8_e4m3fn},
    NamedDtype{"", "torch.float8_e5m2", at::ScalarType::Float8_e5m2},
    NamedDtype{"", "torch.float8_e4m3fnuz", at::ScalarType::Float8_e4m3fnuz},
    NamedDtype{"", "torch.float8_e5m2fnuz", at::ScalarType::Float8_e5m2fnuz},
};
constexpr std::string_view kUntyped = "torch.storage.UntypedStorage";

std::optional<at::ScalarType> storage_dtype(std::string_view name) {
  for (const auto& known : kDtypes) {
    if (known.storage == name) return known.type;
  }
  return std::nullopt;
}

// Before 1.6 torch.save wrote consecutive pickles instead of a zip archive; the first of them is
// this number.
constexpr std::string_view kOldFormat = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";

ZipArchive open_archive(const FileHandle& file, int64_t begin, int64_t length) {
  check_input(begin >= 0 && length >= 0 && begin <= file.size() && length <= file.size() - begin,
              "{}: has {} bytes, its bytes {} to {} were requested", file.path(), file.size(),
              begin, begin + length);
  const std::string start = file.read_text(begin, std::min<int64_t>(length, 16), "first bytes");
  check_input(start.find(kOldFormat) != 2,
              "{0}: is in the format that torch.save wrote before version 1.6; write it again in "
              "Python: torch.save(torch.load('{0}'), '{0}')",
              file.path());
  check_input(start.starts_with("PK"),
              "{}: does not begin like a file of torch.save (a zip archive); copy it again",
              file.path());
  return ZipArchive(file, begin, length);
}

std::string find_root(const ZipArchive& archive, const std::string& path) {
  constexpr std::string_view kPickle = "/data.pkl";
  for (const auto& [name, entry] : archive.entries()) {
    if (name.ends_with(kPickle) && name.find('/') == name.size() - kPickle.size()) {
      return name.substr(0, name.size() - kPickle.size() + 1);
    }
  }
  fail_input("{}: is a zip archive without data.pkl; torch.save did not write it", path);
}

std::vector<int64_t> naturals_of(const PickleValue& value, const char* what,
                                 const std::string& where) {
  std::vector<int64_t> numbers;
  bool is_right = value.kind == PickleKind::tuple || value.kind == PickleKind::list;
  for (const auto* item : value.items) {
    is_right = is_right && item->kind == PickleKind::integer && item->integer >= 0;
    numbers.push_back(item->integer);
  }
  check_input(is_right, "{}: its {} is not a list of non-negative integers", where, what);
  return numbers;
}

// A parameter, or a tensor with attributes, wraps the plain call that makes the tensor.
struct Call {
  std::string_view name;
  const std::vector<const PickleValue*>* arguments;
};

std::optional<Call> tensor_call(const PickleValue& value) {
  const PickleValue* at = &value;
  for (int depth = 0; depth < 4 && at->kind == PickleKind::object; ++depth) {
    const std::string_view name = at->class_name();
    const auto& given = at->arguments->items;
    if (name == "torch._utils._rebuild_parameter" ||
        name == "torch._utils._rebuild_parameter_with_state") {
      if (given.empty()) return std::nullopt;
      at = given[0];
    } else if (name == "torch._tensor._rebuild_from_type_v2") {
      if (given.size() < 3 || given[2]->kind != PickleKind::tuple) return std::nullopt;
      return Call{given[0]->text, &given[2]->items};
    } else {
      return Call{name, &given};
    }
  }
  return std::nullopt;
}

// Checks that the largest element that the strides reach lies in the storage.
void check_extent(const TorchTensor& tensor, const std::string& where) {
  const auto numel = checked_numel(tensor.shape);
  check_input(numel.has_value(), "{}: its shape {} is impossible", where,
              format_shape(tensor.shape));
  int64_t last = tensor.first;
  bool fits = tensor.strides.size() == tensor.shape.size();
  for (size_t i = 0; fits && i < tensor.shape.size(); ++i) {
    int64_t reach = 0;
    fits = !__builtin_mul_overflow(std::max<int64_t>(tensor.shape[i], 1) - 1, tensor.strides[i],
                                   &reach) &&
           !__builtin_add_overflow(last, reach, &last);
  }
  fits = fits && (*numel == 0 ? tensor.first <= tensor.storage_numel : last < tensor.storage_numel);
  check_input(fits, "{}: shape {}, strides {}, from element {} on: its storage has {} elements",
              where, format_shape(tensor.shape), format_shape(tensor.strides), tensor.first,
              tensor.storage_numel);
  // An expanded tensor repeats its elements; without a bound one element could become all memory.
  constexpr int64_t kMostRepeated = int64_t{1} << 28;
  check_input(*numel <= std::max(tensor.storage_numel, kMostRepeated),
              "{}: repeats the {} elements of its storage to {}", where, tensor.storage_numel,
              *numel);
}

}  // namespace

bool TorchTensor::is_contiguous() const {
  int64_t expected = 1;
  for (size_t i = shape.size(); i > 0; --i) {
    if (shape[i - 1] == 0) return true;
    if (shape[i - 1] != 1 && strides[i - 1] != expected) return false;
    expected *= shape[i - 1];
  }
  return true;
}

struct TorchFile::Storage {
  std::optional<at::ScalarType> dtype;  // nothing: untyped bytes, the tensor has the dtype
  int64_t offset = 0;
  int64_t bytes = 0;
  std::shared_ptr<EntrySum> sum = {};
};

TorchFile::TorchFile(const std::string& path, const PickleLimits& limits)
    : TorchFile(FileHandle::open(path), 0, -1, limits) {}

TorchFile::TorchFile(FileHandle file, int64_t begin, int64_t length, const PickleLimits& limits)
    : file_(std::move(file)),
      archive_(open_archive(file_, begin, length < 0 ? file_.size() : length)),
      root_(find_root(archive_, file_.path())),
      pickle_(
          read_pickle(read_entry("data.pkl", limits.max_bytes), path() + ": data.pkl", limits)) {
  for (const auto& [name, entry] : archive_.entries()) {
    const bool is_summed = has_checksums() && entry.bytes > 0 && name.starts_with(root_ + "data/");
    if (is_summed) sums_[name] = std::make_shared<EntrySum>(path(), name, entry);
  }
  if (archive_.entries().contains(root_ + "byteorder")) {
    const std::string order = read_entry("byteorder", 16);
    check_input(order == "little", "{}: its byte order is '{}', only 'little' is supported", path(),
                order);
  }
}

std::string_view TorchFile::saved_name() const {
  return std::string_view(root_).substr(0, root_.size() - 1);
}

std::string TorchFile::read_entry(const std::string& name, int64_t max_bytes) const {
  const ZipEntry* entry = archive_.find(root_ + name);
  check_input(entry->bytes <= max_bytes, "{}: {} takes {} bytes, expected at most {}", path(), name,
              entry->bytes, max_bytes);
  std::string text = file_.read_text(entry->offset, entry->bytes, name);
  const uint32_t sum = crc32(0, text.data(), entry->bytes);
  if (has_checksums() && sum != entry->checksum) {
    fail_entry_sum(path(), name, root_ + name, sum, entry->checksum);
  }
  return text;
}

// The id of a storage: ("storage", class, key, device, number of elements).
TorchFile::Storage TorchFile::storage(const PickleValue& value, const std::string& where) const {
  const bool has_id = value.kind == PickleKind::persistent &&
                      value.arguments->kind == PickleKind::tuple &&
                      value.arguments->items.size() >= 5;
  check_input(has_id, "{}: its storage is {}, expected one of torch's", where, value.describe());
  const auto& id = value.arguments->items;
  const bool is_right = id[0]->text == "storage" && id[1]->kind == PickleKind::global &&
                        id[2]->kind == PickleKind::text && id[4]->kind == PickleKind::integer &&
                        id[4]->integer >= 0;
  check_input(is_right, "{}: the id of its storage is damaged", where);
  const auto dtype = storage_dtype(id[1]->text);
  check_input(dtype.has_value() || id[1]->text == kUntyped, "{}: unknown storage class {}", where,
              id[1]->text);
  const std::string name = root_ + "data/" + id[2]->text;
  const ZipEntry* entry = archive_.find(name);
  check_input(entry != nullptr, "{}: its storage '{}' is not in the file", where, id[2]->text);
  const auto size = dtype ? element_bytes(*dtype) : 1;
  int64_t bytes = 0;
  check_input(!__builtin_mul_overflow(id[4]->integer, size, &bytes) && bytes == entry->bytes,
              "{}: its storage '{}' has {} bytes, expected {} elements of {}", where, id[2]->text,
              entry->bytes, id[4]->integer, id[1]->text);
  const auto sum = sums_.find(name);
  return {dtype, entry->offset, bytes, sum == sums_.end() ? nullptr : sum->second};
}

std::optional<TorchTensor> TorchFile::tensor(const PickleValue& value,
                                             const std::string& where) const {
  const auto call = tensor_call(value);
  if (!call || !call->name.starts_with("torch._utils._rebuild_")) return std::nullopt;
  const auto& given = *call->arguments;
  const bool is_typed = call->name == "torch._utils._rebuild_tensor_v2" ||
                        call->name == "torch._utils._rebuild_tensor";
  check_input(is_typed || call->name == "torch._utils._rebuild_tensor_v3",
              "{}: is made by {}; only dense tensors are supported", where, call->name);
  check_input(given.size() >= (is_typed ? 4 : 7) && given[1]->kind == PickleKind::integer &&
                  given[1]->integer >= 0,
              "{}: its description is damaged", where);
  const Storage held = storage(*given[0], where);
  const auto dtype = is_typed ? held.dtype : torch_dtype(*given[6]);
  check_input(dtype.has_value(), "{}: its dtype is unknown", where);
  const auto size = element_bytes(*dtype);
  TorchTensor tensor{.dtype = *dtype,
                     .shape = naturals_of(*given[2], "shape", where),
                     .strides = naturals_of(*given[3], "list of strides", where),
                     .first = given[1]->integer,
                     .storage_numel = held.bytes / size,
                     .storage_offset = held.offset,
                     .sum = held.sum};
  check_extent(tensor, where);
  return tensor;
}

void TorchFile::read(const TorchTensor& tensor, int64_t begin, const ElementSpan& out,
                     std::string_view what) const {
  if (tensor.is_contiguous()) {
    const auto size = element_bytes(tensor.dtype);
    read_elements(file_, tensor.storage_offset + (tensor.first + begin) * size, tensor.dtype, out,
                  what, tensor.sum.get());
  } else {
    read_strided(file_, tensor, begin, out, what);
  }
}

std::optional<SummedStorage> TorchFile::storage_of(const TorchTensor& tensor,
                                                   std::string what) const {
  if (tensor.sum == nullptr) return std::nullopt;
  return SummedStorage{
      path(), tensor.sum->offset(), tensor.sum->bytes(),
      [this, sum = tensor.sum, what = std::move(what)] { sum->complete(file_, what); }};
}

void TorchFile::check_sums(std::string_view what) const {
  if (!has_checksums()) return;
  std::string block;
  for (const auto& [name, entry] : archive_.entries()) {
    archive_.find(name);  // throws unless it is stored uncompressed
    uint32_t sum = 0;
    for (int64_t done = 0; done < entry.bytes; done += kMiB) {
      const int64_t bytes = std::min(kMiB, entry.bytes - done);
      block.resize(static_cast<size_t>(bytes));
      file_.read_at(entry.offset + done, block.data(), bytes, name);
      sum = crc32(sum, block.data(), bytes);
    }
    if (sum != entry.checksum) {
      fail_entry_sum(path(), owner_of(name, what), name, sum, entry.checksum);
    }
  }
}

// The tensor whose values an entry of the archive holds; `otherwise` if no named tensor does.
std::string TorchFile::owner_of(const std::string& entry, std::string_view otherwise) const {
  const std::string data = root_ + "data/";
  const std::string owner =
      entry.starts_with(data) ? storage_owner(root(), entry.substr(data.size())) : "";
  return owner.empty() ? std::string(otherwise) : fmt::format("tensor '{}'", owner);
}

std::optional<at::ScalarType> torch_dtype(const PickleValue& value) {
  if (value.kind != PickleKind::global) return std::nullopt;
  for (const auto& known : kDtypes) {
    if (known.dtype == value.text) return known.type;
  }
  return std::nullopt;
}

std::string_view torch_storage_name(at::ScalarType dtype) {
  for (const auto& known : kDtypes) {
    if (known.type == dtype) return known.storage;
  }
  return "";
}

}  // namespace fullshard::formats
