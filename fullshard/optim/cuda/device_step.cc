// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/cuda/device_step.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <cassert>

#include "fullshard/optim/cuda/device_rules.h"
#include "fullshard/tensor/kernel_launch.h"

namespace fullshard::optim {
namespace {

using tensor::KernelLaunch;
using tensor::launch_kernel;

const DevicePiece* pieces_of(const KernelLaunch& kernel, const DeviceTable& table) {
  return static_cast<const DevicePiece*>(kernel.read(table.pieces_on_device()));
}

DeviceLaunch launch_of(const KernelLaunch& kernel, const DevicePass& pass,
                       const DeviceSegment& segment) {
  const auto& table = pass.table;
  DeviceLaunch launch;
  launch.pieces = pieces_of(kernel, table);
  launch.blocks =
      static_cast<const DeviceBlock*>(kernel.read(table.blocks_on_device())) + segment.first_block;
  launch.num_blocks = segment.num_blocks;
  launch.first_setting = segment.first_setting;
  launch.num_settings = segment.num_settings;
  launch.num_states = table.num_states();
  launch.storage = segment.storage;
  launch.rounding = pass.rounding;
  launch.factor = kernel.read_as<double>(pass.factor_on_device);
  return launch;
}

// Calls `use` with the launch of each segment, the steps of its settings and the stream.
template <class Step, class Use>
void for_each_segment(const DevicePass& pass, const std::vector<Step>& steps, const Use& use) {
  assert(steps.size() == pass.settings.size());
  launch_kernel("optimizer_step", pass.table.device(), pass.table.bytes_of_a_pass(),
                [&](const KernelLaunch& kernel) {
                  for (const auto& segment : pass.table.segments()) {
                    use(kernel, launch_of(kernel, pass, segment), segment,
                        steps.data() + segment.first_setting);
                    kernel.check_launched();
                  }
                });
}

template <class Step>
void step(const DevicePass& pass, const std::vector<Step>& steps) {
  for_each_segment(pass, steps,
                   [](const KernelLaunch& kernel, const DeviceLaunch& launch, const DeviceSegment&,
                      const Step* own) { launch_step(launch, own, kernel.stream()); });
}

LambSquares* squares_in(const KernelLaunch& kernel, const at::Tensor& tensor) {
  return reinterpret_cast<LambSquares*>(kernel.write_as<double>(tensor));
}

}  // namespace

void step_on_device(const DevicePass& pass, const std::vector<AdamWStep>& steps) {
  step(pass, steps);
}
void step_on_device(const DevicePass& pass, const std::vector<SgdStep>& steps) {
  step(pass, steps);
}
void step_on_device(const DevicePass& pass, const std::vector<AdagradStep>& steps) {
  step(pass, steps);
}
void step_on_device(const DevicePass& pass, const std::vector<LionStep>& steps) {
  step(pass, steps);
}

at::Tensor moments_on_device(const DevicePass& pass, const std::vector<LambStep>& steps,
                             int64_t num_tensors) {
  const auto device = pass.table.device();
  const auto options = at::TensorOptions().device(device).dtype(at::kDouble);
  auto by_block = at::empty({pass.table.num_blocks(), 2}, options);
  auto by_tensor = at::zeros({num_tensors, 2}, options);
  for_each_segment(pass, steps,
                   [&](const KernelLaunch& kernel, DeviceLaunch launch,
                       const DeviceSegment& segment, const LambStep* own) {
                     launch.squares = squares_in(kernel, by_block) + segment.first_block;
                     launch_moments(launch, own, kernel.stream());
                   });
  launch_kernel("lamb_squares", device, {by_block, by_tensor}, [&](const KernelLaunch& kernel) {
    launch_squares_by_tensor(
        pieces_of(kernel, pass.table), static_cast<int>(pass.table.pieces().size()),
        squares_in(kernel, by_block), squares_in(kernel, by_tensor), kernel.stream());
  });
  return by_tensor;
}

at::Tensor trust_ratios_on_device(const at::Tensor& squares, float least, float most) {
  auto ratios = at::empty({squares.size(1)}, squares.options().dtype(at::kFloat));
  launch_kernel(
      "trust_ratios", squares.device(), {squares, ratios}, [&](const KernelLaunch& kernel) {
        launch_trust_ratios(squares_in(kernel, squares), static_cast<int>(squares.size(0)),
                            static_cast<int>(squares.size(1)), {least, most},
                            kernel.write_as<float>(ratios), kernel.stream());
      });
  return ratios;
}

void step_on_device(const DevicePass& pass, const std::vector<LambStep>& steps,
                    const at::Tensor& ratios) {
  for_each_segment(pass, steps,
                   [&](const KernelLaunch& kernel, DeviceLaunch launch, const DeviceSegment&,
                       const LambStep* own) {
                     launch.ratios = kernel.read_as<float>(ratios);
                     launch_step(launch, own, kernel.stream());
                   });
}

}  // namespace fullshard::optim
