// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tensor/storage.h"

#include <ATen/ops/empty.h>
#include <c10/core/StorageImpl.h>

namespace fullshard::tensor {
namespace {

// libtorch 2.11 sets the throwing flag but has no call that clears it (2.13 has). An explicit
// instantiation may name a private member, which serves both.
void set_throwing(c10::StorageImpl& storage, bool throwing);

template <bool c10::StorageImpl::*Member>
struct ThrowingFlag {
  friend void set_throwing_flag(c10::StorageImpl& storage, bool throwing) {
    storage.*Member = throwing;
  }
};
void set_throwing_flag(c10::StorageImpl& storage, bool throwing);
template struct ThrowingFlag<&c10::StorageImpl::throw_on_immutable_data_ptr_>;

void set_throwing(c10::StorageImpl& storage, bool throwing) {
  set_throwing_flag(storage, throwing);
}

c10::StorageImpl& storage_of(const at::Tensor& tensor) {
  return *tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

}  // namespace

at::Tensor empty_storage_tensor(int64_t numel, at::ScalarType dtype, const std::string& why,
                                at::Device device) {
  const auto bytes = static_cast<size_t>(numel) * c10::elementSize(dtype);
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                       at::DataPtr(nullptr, device),
                                                       /*allocator=*/nullptr, /*resizable=*/false);
  auto tensor = at::empty({0}, at::TensorOptions().dtype(dtype).device(device));
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(at::Storage(std::move(storage)));
  impl->set_sizes_contiguous({numel});
  release(tensor, why);
  return tensor;
}

void release(const at::Tensor& tensor, const std::string& why) {
  auto& storage = storage_of(tensor);
  storage.set_data_ptr_noswap(at::DataPtr(nullptr, storage.device()));
  storage.release_data_and_set_meta_custom_data_ptr_error_msg_(why);
}

void refill(const at::Tensor& tensor, void* data) {
  auto& storage = storage_of(tensor);
  set_throwing(storage, false);
  storage.set_data_ptr_noswap(at::DataPtr(data, storage.device()));  // refreshes the cached flag
}

bool is_released(const at::Tensor& tensor) {
  auto& storage = storage_of(tensor);
  return storage.nbytes() > 0 && storage._mutable_data_ptr_no_checks().get() == nullptr;
}

at::Tensor throwing_tensor(at::IntArrayRef shape, at::ScalarType dtype, const std::string& why,
                           at::Device device) {
  const std::vector<int64_t> zero_strides(shape.size(), 0);
  return empty_storage_tensor(1, dtype, why, device).as_strided(shape, zero_strides);
}

}  // namespace fullshard::tensor
