// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/safetensors/safetensors_writer.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <optional>

#include "fullshard/base/bytes.h"
#include "fullshard/formats/convert_kernels.h"
#include "fullshard/formats/file_handle.h"
#include "fullshard/formats/input_error.h"
#include "fullshard/formats/replace_file.h"
#include "fullshard/formats/safetensors/safetensors_header.h"
#include "fullshard/formats/written_ranges.h"

namespace fullshard {
namespace {

constexpr int64_t kWrittenBlockBytes = kMiB;

struct Slot {
  formats::SafetensorsEntry entry;
  TensorPlan plan;
  formats::WrittenRanges written;
};

}  // namespace

struct SafetensorsWriter::State {
  std::string path;
  std::string part;
  int64_t file_bytes = 0;
  std::map<std::string, Slot> slots;
  std::optional<formats::FileHandle> file;  // until finish()

  Slot& slot(const std::string& name) {
    const auto found = slots.find(name);
    formats::check_input(found != slots.end(), "{}: tensor '{}' was not planned", path, name);
    formats::check_input(file.has_value(), "{}: tensor '{}' is written after finish()", path, name);
    return found->second;
  }

  void write_at(int64_t offset, const void* data, int64_t bytes) {
    try {
      file->write_at(offset, data, bytes);
    } catch (const Error& error) {
      fail_as(error.kind(), "{}; the whole file needs {}", error.what(), format_bytes(file_bytes));
    }
  }
};

SafetensorsWriter::SafetensorsWriter(std::string path, std::vector<TensorPlan> tensors)
    : state_(std::make_unique<State>()) {
  State& state = *state_;
  const formats::SafetensorsHeader header = formats::lay_out_safetensors(tensors, path);
  for (const auto& entry : header.entries) {
    formats::check_input(
        state.slots
            .emplace(entry.name, Slot{entry, {entry.name, entry.shape, entry.type->dtype}, {}})
            .second,
        "{}: tensor '{}' is planned twice", path, entry.name);
  }
  state.path = std::move(path);
  state.part = state.path + ".part";
  state.file_bytes = header.file_bytes();
  formats::check_room(state.path, state.file_bytes);
  state.file.emplace(formats::FileHandle::create(state.part));
  const std::string bytes = formats::format_safetensors_header(header);
  try {
    state.write_at(0, bytes.data(), static_cast<int64_t>(bytes.size()));
  } catch (...) {
    ::unlink(state.part.c_str());  // the destructor does not run
    throw;
  }
}

SafetensorsWriter::~SafetensorsWriter() {
  if (state_->file) ::unlink(state_->part.c_str());
}

const std::string& SafetensorsWriter::path() const { return state_->path; }

const TensorPlan& SafetensorsWriter::planned(const std::string& name) const {
  return state_->slot(name).plan;
}

void SafetensorsWriter::write_range(const std::string& name, int64_t begin,
                                    const ElementSpan& values) {
  State& state = *state_;
  Slot& slot = state.slot(name);
  const at::ScalarType dtype = slot.plan.dtype;
  const int64_t size = element_bytes(dtype);
  const int64_t numel = slot.entry.bytes() / size;
  formats::check_input(begin >= 0 && begin <= numel && values.numel <= numel - begin,
                       "{}: tensor '{}' has {} elements, {} from {} on were given", state.path,
                       name, numel, values.numel, begin);
  formats::check_input(!slot.written.overlaps(begin, begin + values.numel),
                       "{}: tensor '{}': elements {} to {} were already written", state.path, name,
                       begin, begin + values.numel);
  const int64_t offset = slot.entry.begin + begin * size;
  if (values.dtype == dtype) {
    if (values.numel > 0) state.write_at(offset, values.data, values.bytes());
  } else {
    const int64_t most = std::min(values.numel, kWrittenBlockBytes / size);
    const ElementBuffer buffer(most, dtype);
    for (int64_t done = 0; done < values.numel; done += most) {
      const ElementSpan block = buffer.all().part(0, std::min(most, values.numel - done));
      formats::convert_elements(values.part(done, block.numel), block);
      state.write_at(offset + done * size, block.data, block.bytes());
    }
  }
  slot.written.add(begin, begin + values.numel);
}

void SafetensorsWriter::finish() {
  State& state = *state_;
  formats::check_input(state.file.has_value(), "{}: is already finished", state.path);
  std::vector<std::string> missing;
  for (const auto& [name, slot] : state.slots) {
    const auto numel = checked_numel(slot.entry.shape);
    if (!slot.written.covers(*numel)) missing.push_back(fmt::format("'{}'", name));
  }
  const size_t count = missing.size();
  if (count > 8) missing.resize(8);
  formats::check_input(count == 0, "{}: {} tensors were not written completely: {}{}", state.path,
                       count, fmt::join(missing, ", "), count > 8 ? ", ..." : "");
  state.file->sync();
  formats::rename_into_place(state.part, state.path);
  state.file.reset();
}

}  // namespace fullshard
