#include "fullshard/formats/torch_writer.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "fullshard/base/bytes.h"
#include "fullshard/formats/crc32.h"
#include "fullshard/formats/file_handle.h"
#include "fullshard/formats/input_error.h"
#include "fullshard/formats/torch_file.h"
#include "fullshard/formats/zip_layout.h"

namespace fullshard {
namespace {

constexpr const char* kRoot = "archive/";
constexpr int64_t kBlockNumel = int64_t{1} << 18;

struct PlannedStorage {
  at::ScalarType dtype = at::kFloat;
  int64_t numel = 0;
  int64_t written = 0;
  size_t slot = 0;
};

std::string_view storage_class(at::ScalarType dtype) {
  const auto name = torch_storage_name(dtype);
  check_input(name.starts_with("torch."), "torch file: {} is no dtype that is written",
              c10::toString(dtype));
  return name.substr(std::string_view("torch.").size());
}

}  // namespace

struct TorchWriter::State {
  std::string path;
  std::string part;
  PickleWriter pickle;
  std::vector<PlannedStorage> storages;
  ZipLayout zip;
  std::optional<FileHandle> file;                     // from begin() to finish()
  std::vector<std::pair<size_t, std::string>> texts;  // entries that are not storages

  void write_at(int64_t offset, const std::string& bytes) {
    file->write_at(offset, bytes.data(), static_cast<int64_t>(bytes.size()));
  }

  void add_text(const std::string& name, std::string bytes) {
    const size_t slot = zip.add(kRoot + name, static_cast<int64_t>(bytes.size()));
    zip.slots()[slot].checksum = crc32(0, bytes.data(), static_cast<int64_t>(bytes.size()));
    texts.emplace_back(slot, std::move(bytes));
  }

  void write_block(PlannedStorage& storage, const at::Tensor& block) {
    ZipSlot& slot = zip.slots()[storage.slot];
    const auto size = static_cast<int64_t>(c10::elementSize(storage.dtype));
    const int64_t bytes = block.numel() * size;
    file->write_at(slot.offset + storage.written * size, block.const_data_ptr(), bytes);
    slot.checksum = crc32(slot.checksum, block.const_data_ptr(), bytes);
    storage.written += block.numel();
  }
};

TorchWriter::TorchWriter(std::string path) : state_(std::make_unique<State>()) {
  state_->path = std::move(path);
  state_->part = state_->path + ".part";
}

TorchWriter::~TorchWriter() {
  if (state_->file) ::unlink(state_->part.c_str());
}

PickleWriter& TorchWriter::pickle() { return state_->pickle; }

size_t TorchWriter::add_storage(at::ScalarType dtype, int64_t numel) {
  storage_class(dtype);  // checks it
  state_->storages.push_back({dtype, numel});
  return state_->storages.size() - 1;
}

void TorchWriter::put_tensor(size_t storage, const std::vector<int64_t>& shape, int64_t first) {
  PickleWriter& pickle = state_->pickle;
  const PlannedStorage& planned = state_->storages[storage];
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t d = shape.size(); d > 1; --d) {
    strides[d - 2] = strides[d - 1] * std::max<int64_t>(shape[d - 1], 1);
  }
  pickle.put_global("torch._utils", "_rebuild_tensor_v2");
  pickle.begin_tuple();
  pickle.begin_tuple();
  pickle.put("storage");
  pickle.put_global("torch", storage_class(planned.dtype));
  pickle.put(std::to_string(storage));
  pickle.put("cpu");
  pickle.put(planned.numel);
  pickle.end_tuple();
  pickle.make_persistent();
  pickle.put(first);
  pickle.put_tuple(shape);
  pickle.put_tuple(strides);
  pickle.put(false);  // requires no gradient
  pickle.put_empty_ordered_dict();
  pickle.end_tuple();
  pickle.call();
}

void TorchWriter::begin() {
  State& state = *state_;
  state.add_text("data.pkl", state.pickle.finish());
  state.add_text("byteorder", "little");
  for (size_t i = 0; i < state.storages.size(); ++i) {
    PlannedStorage& storage = state.storages[i];
    const auto size = static_cast<int64_t>(c10::elementSize(storage.dtype));
    storage.slot = state.zip.add(fmt::format("{}data/{}", kRoot, i), storage.numel * size);
  }
  state.add_text("version", "3\n");
  const int64_t bytes = state.zip.directory_offset();
  const int64_t room = free_bytes_beside(state.path);
  check_input(room < 0 || room >= bytes, "{}: needs {} on disk, {} are free there", state.path,
              format_bytes(bytes), format_bytes(room));
  state.file.emplace(FileHandle::create(state.part));
  for (const auto& [slot, text] : state.texts) state.write_at(state.zip.slot(slot).offset, text);
}

void TorchWriter::write_next(size_t index, const at::Tensor& values) {
  PlannedStorage& storage = state_->storages[index];
  check_input(values.is_cpu() && values.numel() <= storage.numel - storage.written,
              "{}: storage {} has {} elements, {} were written and {} more given", state_->path,
              index, storage.numel, storage.written, values.numel());
  const at::NoGradGuard no_grad;
  const at::Tensor flat = values.detach().contiguous().view(-1);
  const bool is_cast = flat.scalar_type() != storage.dtype;
  for (int64_t done = 0; done < flat.numel(); done += kBlockNumel) {
    const at::Tensor block = flat.narrow(0, done, std::min(kBlockNumel, flat.numel() - done));
    state_->write_block(storage, is_cast ? block.to(storage.dtype) : block);
  }
}

void TorchWriter::finish() {
  State& state = *state_;
  for (size_t i = 0; i < state.storages.size(); ++i) {
    check_input(state.storages[i].written == state.storages[i].numel,
                "{}: storage {} has {} elements, {} were written", state.path, i,
                state.storages[i].numel, state.storages[i].written);
  }
  for (const auto& slot : state.zip.slots()) state.write_at(slot.header, slot.header_bytes());
  state.write_at(state.zip.directory_offset(), state.zip.directory_bytes());
  state.file->sync();
  check_input(std::rename(state.part.c_str(), state.path.c_str()) == 0,
              "{}: cannot be given its name: {}", state.part, std::strerror(errno));
  state.file.reset();
  sync_folder_of(state.path);
}

}  // namespace fullshard
