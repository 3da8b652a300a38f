// SPDX-License-Identifier: Apache-2.0
// The gradients of a group on one rank alone: nothing is sent, so they stay in fp32 slots that
// operators write, add to, or hand over whole.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "fullshard/engine/gradients/used_gradients.h"
#include "fullshard/engine/plan/layout.h"
#include "fullshard/memory/pool.h"
#include "fullshard/memory/relocation.h"
#include "fullshard/nn/gradient_hook.h"

namespace fullshard::engine {

// Slots lie side by side in one buffer, as the parameters do, so that one product can fill several;
// one that is most of its group stands alone, so that a gradient of that size that exists already
// need not be copied.
class SlotGradients {
 public:
  SlotGradients(std::shared_ptr<memory::Pool> pool, const Layout& layout, at::ScalarType dtype);

  // The slot, empty or with what it holds; counts as filled.
  nn::GradientSink open(int slot);
  // Takes the tensor itself as the slot's gradient; false when it cannot.
  bool take(int slot, const at::Tensor& gradient);
  // Slots that nothing came for become zeros.
  void fill_missing();
  void drop();
  // From here on slots keep their memory when they are dropped, and are always filled there: for
  // work that was given to a device once and writes them again and again.
  void keep_memory() { keeps_memory_ = true; }
  // That work has run: every slot holds a gradient.
  void mark_filled();
  // The same for slots that an update still reads: their memory goes to `used`.
  void drop_into(UsedGradients& used);

  void relocate(const memory::Relocation& relocation);

  // What the slots lie in.
  std::vector<at::Tensor> memory() const;

  bool is_filled(int slot) const { return filled_[static_cast<size_t>(slot)]; }
  at::Tensor view(int slot) const;

 private:
  bool is_dedicated(int slot) const { return offsets_[static_cast<size_t>(slot)] < 0; }
  void make_room(int slot);

  std::shared_ptr<memory::Pool> pool_;
  const Layout& layout_;
  at::ScalarType dtype_;
  std::vector<int64_t> offsets_;  // in the buffer; -1: stands alone
  int64_t numel_ = 0;             // of the buffer
  memory::Block buffer_;
  std::vector<at::Tensor> dedicated_;
  std::vector<bool> filled_;
  bool keeps_memory_ = false;
};

}  // namespace fullshard::engine
