#include "fullshard/formats/read_elements.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <string>
#include <vector>

#include "fullshard/base/bytes.h"
#include "fullshard/base/closest.h"
#include "fullshard/formats/element_type.h"
#include "fullshard/formats/input_error.h"

namespace fullshard {
namespace {

static_assert(std::endian::native == std::endian::little, "files hold little-endian values");

constexpr int64_t kBlockBytes = kMiB;

// A file may hold any byte, while a C++ bool may not.
void make_booleans(void* data, int64_t numel) {
  auto* bytes = static_cast<unsigned char*>(data);
  for (int64_t i = 0; i < numel; ++i) bytes[i] = bytes[i] != 0 ? 1 : 0;
}

void read_raw(const FileHandle& file, int64_t offset, at::ScalarType stored, void* data,
              int64_t numel, std::string_view what) {
  const auto size = static_cast<int64_t>(c10::elementSize(stored));
  file.read_at(offset, data, numel * size, what);
  if (stored == at::kBool) make_booleans(data, numel);
}

}  // namespace

void read_elements(const FileHandle& file, int64_t offset, at::ScalarType stored,
                   const at::Tensor& out, std::string_view what) {
  const int64_t numel = out.numel();
  if (numel == 0) return;
  if (out.scalar_type() == stored) {
    read_raw(file, offset, stored, out.mutable_data_ptr(), numel, what);
    return;
  }
  const at::NoGradGuard no_grad;
  const auto size = static_cast<int64_t>(c10::elementSize(stored));
  const int64_t most = std::min(numel, kBlockBytes / size);
  const auto buffer = std::make_unique_for_overwrite<char[]>(static_cast<size_t>(most * size));
  for (int64_t done = 0; done < numel; done += most) {
    const int64_t count = std::min(most, numel - done);
    read_raw(file, offset + done * size, stored, buffer.get(), count, what);
    out.narrow(0, done, count).copy_(at::from_blob(buffer.get(), {count}, stored));
  }
}

void check_target(const StoredTensor& tensor, int64_t begin, const at::Tensor& out) {
  check_input(is_readable(tensor.dtype),
              "{}: tensor '{}': its dtype {} is not one that is read here; convert the file",
              tensor.file, tensor.name, c10::toString(tensor.dtype));
  check_input(out.dim() == 1 && out.is_contiguous() && out.is_cpu(),
              "{}: tensor '{}': is read into a 1-D contiguous CPU tensor, not into one of shape {}",
              tensor.file, tensor.name, format_shape(out.sizes()));
  const int64_t numel = tensor.numel();
  check_input(begin >= 0 && begin <= numel && out.numel() <= numel - begin,
              "{}: tensor '{}': {} elements from {} on were asked for; it has {}", tensor.file,
              tensor.name, out.numel(), begin, numel);
}

const StoredTensor& find_or_fail(const TensorSource& source, const std::string& name,
                                 const std::string& where) {
  if (const auto* tensor = source.find(name)) return *tensor;
  std::vector<std::string> names;
  for (const auto& tensor : source.tensors()) names.push_back(tensor.name);
  const auto near = closest(name, names);
  fail_as(ErrorKind::input, "{}: has no tensor '{}' among its {}{}", where, name, names.size(),
          near ? fmt::format("; did you mean '{}'?", *near) : "");
}

}  // namespace fullshard
