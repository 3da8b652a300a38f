// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/storage/flat_buffer.h"

#include <fmt/format.h>

#include "fullshard/nn/deferred.h"
#include "fullshard/tensor/storage.h"

namespace fullshard::engine {

FlatBuffer::FlatBuffer(const Layout& layout, at::ScalarType dtype, const std::string& owner,
                       at::Device device)
    : layout_(layout),
      released_message_(fmt::format(
          "a parameter of {} is used while it is sharded: its full values exist only inside that "
          "unit's forward and backward. Call the unit as block(x) or block->forward(x). To read or "
          "copy it, open `auto full = sharded.gather_full();`. To save the model, call "
          "save_model, save_weights or save_checkpoint in place of torch::save. To change its "
          "dtype or device (Module::to), do so before shard(). To train it, step over the shards: "
          "fullshard::AdamW(sharded, …)",
          owner)),
      updated_message_(fmt::format(
          "a parameter of {} is used while the optimizer's update of it is under way: its states "
          "rest in host memory, and it is updated just before its unit's next forward. Call "
          "`sharded.settle()` after step() before code that reads it outside a forward",
          owner)),
      asleep_message_(fmt::format(
          "a parameter of {} is used while the model sleeps; call sharded.wake() first", owner)) {
  flat_ = tensor::empty_storage_tensor(layout.numel(), dtype, released_message_, device);
}

FlatBuffer::~FlatBuffer() {
  tensor::release(
      flat_, "the ShardedModel that held this parameter is gone; keep it as long as its module");
}

void FlatBuffer::adopt(int slot, at::Tensor& parameter) {
  const auto& place = layout_.slots()[slot];
  const auto view = flat_.narrow(0, place.offset, place.numel).view(place.shape);
  if (parameter.is_meta()) {
    if (parameter.scalar_type() != view.scalar_type()) {
      parameter.set_data(parameter.to(view.scalar_type()));
    }
    materialise_as(parameter, view);
  } else {
    parameter.set_data(view);
  }
}

void FlatBuffer::attach(void* memory) {
  tensor::refill(flat_, memory);
  attached_ = true;
}

void FlatBuffer::detach() {
  tensor::release(flat_, released_message_);
  attached_ = false;
}

void FlatBuffer::detach_for_update() {
  tensor::release(flat_, updated_message_);
  attached_ = false;
}

void FlatBuffer::detach_asleep() {
  tensor::release(flat_, asleep_message_);
  attached_ = false;
}

bool FlatBuffer::owns(const at::Tensor& parameter) const {
  return parameter.unsafeGetTensorImpl()->unsafe_storage().is_alias_of(
      flat_.unsafeGetTensorImpl()->unsafe_storage());
}

}  // namespace fullshard::engine
