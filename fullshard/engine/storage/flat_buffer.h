// SPDX-License-Identifier: Apache-2.0
// One storage, many views. The views are the module's own parameters: they keep their identity for
// ever, while the memory under them comes and goes.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "fullshard/engine/plan/layout.h"

namespace fullshard::engine {

class FlatBuffer {
 public:
  // `owner` names the unit in the error that a reader meets while the memory is away.
  FlatBuffer(const Layout& layout, at::ScalarType dtype, const std::string& owner,
             at::Device device);

  // Makes `parameter` the view of a slot; every handle to it sees the change.
  void adopt(int slot, at::Tensor& parameter);

  // A module may outlive its shards; what it holds then says so.
  ~FlatBuffer();
  FlatBuffer(const FlatBuffer&) = delete;
  FlatBuffer& operator=(const FlatBuffer&) = delete;

  void attach(void* memory);
  void detach();
  // The same while an update of the values is under way beside the caller.
  void detach_for_update();
  // The same while the model sleeps.
  void detach_asleep();
  bool is_attached() const { return attached_; }

  // False once somebody gave an adopted parameter other memory (Module::to, set_data).
  bool owns(const at::Tensor& parameter) const;

 private:
  const Layout& layout_;
  at::Tensor flat_;
  std::string released_message_;
  std::string updated_message_;
  std::string asleep_message_;
  bool attached_ = false;
};

}  // namespace fullshard::engine
