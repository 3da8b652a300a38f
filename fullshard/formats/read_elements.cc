// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/read_elements.h"

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "fullshard/base/bytes.h"
#include "fullshard/base/closest.h"
#include "fullshard/formats/convert_kernels.h"
#include "fullshard/formats/element_type.h"
#include "fullshard/formats/entry_sum.h"
#include "fullshard/formats/input_error.h"

namespace fullshard::formats {
namespace {

static_assert(std::endian::native == std::endian::little, "files hold little-endian values");

constexpr int64_t kBlockBytes = kMiB;

// A file may hold any byte, while a C++ bool may not.
void make_booleans(void* data, int64_t numel) {
  auto* bytes = static_cast<unsigned char*>(data);
  for (int64_t i = 0; i < numel; ++i) bytes[i] = bytes[i] != 0 ? 1 : 0;
}

// Summed while they are still in the cache.
void read_summed(const FileHandle& file, int64_t offset, char* data, int64_t bytes,
                 std::string_view what, EntrySum& sum) {
  for (int64_t done = 0; done < bytes; done += kBlockBytes) {
    const int64_t part = std::min(kBlockBytes, bytes - done);
    file.read_at(offset + done, data + done, part, what);
    sum.add(offset + done, data + done, part, what);
  }
}

void read_raw(const FileHandle& file, int64_t offset, at::ScalarType stored, void* data,
              int64_t numel, std::string_view what, EntrySum* sum) {
  const int64_t bytes = numel * element_bytes(stored);
  if (sum != nullptr) {
    read_summed(file, offset, static_cast<char*>(data), bytes, what, *sum);
  } else {
    file.read_at(offset, data, bytes, what);
  }
  if (stored == at::kBool) make_booleans(data, numel);
}

}  // namespace

void read_elements(const FileHandle& file, int64_t offset, at::ScalarType stored,
                   const ElementSpan& out, std::string_view what, EntrySum* sum) {
  if (out.numel == 0) return;
  if (out.dtype == stored) {
    read_raw(file, offset, stored, out.data, out.numel, what, sum);
    return;
  }
  const int64_t size = element_bytes(stored);
  const int64_t most = std::min(out.numel, kBlockBytes / size);
  const ElementBuffer buffer(most, stored);
  for (int64_t done = 0; done < out.numel; done += most) {
    const ElementSpan block = buffer.all().part(0, std::min(most, out.numel - done));
    read_raw(file, offset + done * size, stored, block.data, block.numel, what, sum);
    convert_elements(block, out.part(done, block.numel));
  }
}

void check_target(const StoredTensor& tensor, int64_t begin, const ElementSpan& out) {
  check_input(is_readable(tensor.dtype), "{}: tensor '{}': unsupported dtype {}; convert the file",
              tensor.file, tensor.name, c10::toString(tensor.dtype));
  const int64_t numel = tensor.numel();
  check_input(begin >= 0 && begin <= numel && out.numel <= numel - begin,
              "{}: tensor '{}': {} elements from {} on were requested; it has {}", tensor.file,
              tensor.name, out.numel, begin, numel);
}

const StoredTensor& find_or_fail(const TensorSource& source, const std::string& name,
                                 std::string_view where) {
  if (const auto* tensor = source.find(name)) return *tensor;
  std::vector<std::string> names;
  for (const auto& tensor : source.tensors()) names.push_back(tensor.name);
  const auto near = base::closest(name, names);
  fail_input("{}: has no tensor '{}' among its {}{}", where, name, names.size(),
             near ? fmt::format("; did you mean '{}'?", *near) : "");
}

}  // namespace fullshard::formats
