// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/torch/torch_writer.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "fullshard/formats/convert_kernels.h"
#include "fullshard/formats/crc32.h"
#include "fullshard/formats/element_type.h"
#include "fullshard/formats/file_handle.h"
#include "fullshard/formats/input_error.h"
#include "fullshard/formats/replace_file.h"
#include "fullshard/formats/torch/torch_layout.h"

namespace fullshard::formats {
namespace {

constexpr int64_t kBlockNumel = int64_t{1} << 18;

}  // namespace

struct TorchWriter::State {
  std::string path;
  std::string part;
  TorchLayout layout;
  std::vector<int64_t> written;    // elements of every storage
  std::optional<FileHandle> file;  // from begin() to finish()

  void write_at(int64_t offset, const std::string& bytes) {
    file->write_at(offset, bytes.data(), static_cast<int64_t>(bytes.size()));
  }

  void write_block(size_t storage, const ElementSpan& block) {
    if (block.numel == 0) return;
    ZipSlot& slot = layout.zip().slots()[layout.storages()[storage].slot];
    const int64_t offset = slot.offset + written[storage] * element_bytes(block.dtype);
    file->write_at(offset, block.data, block.bytes());
    slot.checksum = crc32(slot.checksum, block.data, block.bytes());
    written[storage] += block.numel;
  }
};

TorchWriter::TorchWriter(std::string path) : state_(std::make_unique<State>()) {
  state_->path = std::move(path);
  state_->part = state_->path + ".part";
}

TorchWriter::~TorchWriter() {
  if (state_->file) ::unlink(state_->part.c_str());
}

PickleWriter& TorchWriter::pickle() { return state_->layout.pickle(); }

size_t TorchWriter::add_storage(at::ScalarType dtype, int64_t numel) {
  return state_->layout.add_storage(dtype, numel);
}

void TorchWriter::put_tensor(size_t storage, const std::vector<int64_t>& shape, int64_t first) {
  state_->layout.put_tensor(storage, shape, first);
}

void TorchWriter::begin() {
  State& state = *state_;
  state.layout.lay_out();
  state.written.resize(state.layout.storages().size());
  check_room(state.path, state.layout.zip().directory_offset());
  state.file.emplace(FileHandle::create(state.part));
  for (const auto& [offset, text] : state.layout.texts()) state.write_at(offset, text);
}

void TorchWriter::write_next(size_t index, const ElementSpan& values) {
  const PlannedStorage& storage = state_->layout.storages()[index];
  const int64_t written = state_->written[index];
  check_input(values.numel <= storage.numel - written,
              "{}: storage {} has {} elements, {} were written and {} more given", state_->path,
              index, storage.numel, written, values.numel);
  if (values.dtype == storage.dtype) return state_->write_block(index, values);
  const int64_t most = std::min(values.numel, kBlockNumel);
  const ElementBuffer buffer(most, storage.dtype);
  for (int64_t done = 0; done < values.numel; done += most) {
    const ElementSpan block = buffer.all().part(0, std::min(most, values.numel - done));
    convert_elements(values.part(done, block.numel), block);
    state_->write_block(index, block);
  }
}

void TorchWriter::finish() {
  State& state = *state_;
  for (size_t i = 0; i < state.written.size(); ++i) {
    const int64_t numel = state.layout.storages()[i].numel;
    check_input(state.written[i] == numel, "{}: storage {} has {} elements, {} were written",
                state.path, i, numel, state.written[i]);
  }
  ZipLayout& zip = state.layout.zip();
  for (const auto& slot : zip.slots()) state.write_at(slot.header, slot.header_bytes());
  state.write_at(zip.directory_offset(), zip.directory_bytes());
  state.file->sync();
  rename_into_place(state.part, state.path);
  state.file.reset();
}

}  // namespace fullshard::formats
