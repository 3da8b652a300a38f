// SPDX-License-Identifier: Apache-2.0
// Updates by the host's own cores of states that rest in host memory, beside the device:
//
//   step()        gradients, and what else the update needs and the device has, come to the host; a
//                 thread waits for them and for the clip factor, updates, and sends the new
//                 parameters back
//   next forward  waits for each group's parameters when it needs them
//
// The arithmetic is the device's, so are the bits.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "fullshard/engine/engine.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/memory/host_lane.h"
#include "fullshard/memory/host_number.h"
#include "fullshard/memory/lane.h"
#include "fullshard/memory/pool.h"

namespace fullshard::optim {

// Owned by its optimizer. One thread at a time.
class HostStep : public engine::UpdateStream {
 public:
  // Updates one piece, which it looks at, with its gradient multiplied by the factor.
  using PieceStep = std::function<void(double factor)>;
  // Settings are fixed when it is made.
  using MakeStep = std::function<PieceStep(const PieceView& piece)>;

  explicit HostStep(engine::Engine& engine);
  ~HostStep() override;
  HostStep(const HostStep&) = delete;
  HostStep& operator=(const HostStep&) = delete;

  bool steps(int group) const;

  // `factor_on_device`: one number that counts instead of the pieces' factor; where it is not
  // finite nothing is updated. Undefined: there is none.
  void start_step(const at::Tensor& factor_on_device);
  engine::StreamedUpdate update(int group, const std::vector<PieceView>& pieces, double factor,
                                const MakeStep& make);
  void settle() override;

 private:
  // Host memory for what a device has of a group's update, as long as the shard each.
  struct Mirrors {
    memory::Block master, shown, lower, gradient;
  };
  struct Copy {
    at::Tensor to, from;
  };
  // The copies of a group's update, and the pieces as they lie in host memory.
  struct Visit {
    std::vector<PieceView> pieces;
    std::vector<Copy> down, up;
  };

  at::Tensor on_host(memory::Block& mirror, const PieceView& piece, const at::Tensor& values) const;
  Visit visit(int group, const std::vector<PieceView>& pieces);

  engine::Engine& engine_;
  std::vector<Mirrors> mirrors_;  // by group
  std::shared_ptr<const memory::HostNumber> factor_;
  memory::Lane copies_down_, copies_up_;
  memory::HostLane thread_;
};

}  // namespace fullshard::optim
