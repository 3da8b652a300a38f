// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tensor/watched_alias.h"

#include <c10/core/InferenceMode.h>
#include <c10/core/TensorImpl.h>

namespace fullshard::tensor {
namespace {

// data() and detach() copy the handle with a version counter of the copy's own, or of the caller's:
// here all of them share one.
class WatchedImpl : public c10::TensorImpl {
 public:
  explicit WatchedImpl(const at::Tensor& values)
      : TensorImpl(c10::Storage(values.storage()), values.key_set(), values.dtype()) {
    set_storage_offset(values.storage_offset());
    set_sizes_contiguous(values.sizes());
  }

  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(
      const c10::VariableVersion&, bool allow_tensor_metadata_change) const override {
    return TensorImpl::shallow_copy_and_detach(version_counter(), allow_tensor_metadata_change);
  }
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(
      c10::VariableVersion&&, bool allow_tensor_metadata_change) const override {
    return TensorImpl::shallow_copy_and_detach(version_counter(), allow_tensor_metadata_change);
  }
};

}  // namespace

at::Tensor watched_alias(const at::Tensor& values) {
  const c10::InferenceMode counts(false);
  return at::Tensor(c10::make_intrusive<WatchedImpl>(values));
}

}  // namespace fullshard::tensor
