// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <cassert>

#include "fullshard/optim/cuda/device_rules.h"
#include "fullshard/optim/cuda/device_step.h"
#include "fullshard/tensor/operator_watch.h"
#include "fullshard/tensor/pretence.h"

namespace fullshard::optim {
namespace {

DeviceLaunch launch_of(const DevicePass& pass, const DeviceSegment& segment) {
  const auto& table = pass.table;
  DeviceLaunch launch;
  launch.pieces = table.device_pieces();
  launch.blocks = table.device_blocks() + segment.first_block;
  launch.num_blocks = segment.num_blocks;
  launch.first_setting = segment.first_setting;
  launch.num_settings = segment.num_settings;
  launch.num_states = table.num_states();
  launch.storage = segment.storage;
  launch.rounding = pass.rounding;
  if (pass.factor_on_device.defined()) {
    launch.factor = pass.factor_on_device.const_data_ptr<double>();
  }
  return launch;
}

// Calls `use` with the launch of each segment, the steps of its settings and the stream.
template <class Step, class Use>
void for_each_segment(const DevicePass& pass, const std::vector<Step>& steps, const Use& use) {
  assert(steps.size() == pass.settings.size());
  if (tensor::is_pretended()) {
    return tensor::note_kernel("optimizer_step", pass.table.bytes_of_a_pass());
  }
  const c10::cuda::CUDAGuard guard(pass.table.device());
  const auto stream = c10::cuda::getCurrentCUDAStream();
  for (const auto& segment : pass.table.segments()) {
    use(launch_of(pass, segment), segment, steps.data() + segment.first_setting, stream.stream());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  }
}

template <class Step>
void step(const DevicePass& pass, const std::vector<Step>& steps) {
  for_each_segment(pass, steps,
                   [](const DeviceLaunch& launch, const DeviceSegment&, const Step* own,
                      cudaStream_t stream) { launch_step(launch, own, stream); });
}

const LambSquares* squares_in(const at::Tensor& tensor) {
  return reinterpret_cast<const LambSquares*>(tensor.const_data_ptr<double>());
}

LambSquares* mutable_squares_in(const at::Tensor& tensor) {
  return reinterpret_cast<LambSquares*>(tensor.mutable_data_ptr<double>());
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
  const auto options = at::TensorOptions().device(pass.table.device()).dtype(at::kDouble);
  auto by_block = at::empty({pass.table.num_blocks(), 2}, options);
  auto by_tensor = at::zeros({num_tensors, 2}, options);
  for_each_segment(pass, steps,
                   [&](DeviceLaunch launch, const DeviceSegment& segment, const LambStep* own,
                       cudaStream_t stream) {
                     launch.squares = mutable_squares_in(by_block) + segment.first_block;
                     launch_moments(launch, own, stream);
                   });
  if (tensor::is_pretended()) return by_tensor;
  const c10::cuda::CUDAGuard guard(pass.table.device());
  launch_squares_by_tensor(pass.table.device_pieces(), static_cast<int>(pass.table.pieces().size()),
                           squares_in(by_block), mutable_squares_in(by_tensor),
                           c10::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return by_tensor;
}

at::Tensor trust_ratios_on_device(const at::Tensor& squares, float least, float most) {
  auto ratios = at::empty({squares.size(1)}, squares.options().dtype(at::kFloat));
  if (tensor::is_pretended()) return ratios;
  const c10::cuda::CUDAGuard guard(squares.device());
  launch_trust_ratios(squares_in(squares), static_cast<int>(squares.size(0)),
                      static_cast<int>(squares.size(1)), {least, most},
                      ratios.mutable_data_ptr<float>(), c10::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return ratios;
}

void step_on_device(const DevicePass& pass, const std::vector<LambStep>& steps,
                    const at::Tensor& ratios) {
  for_each_segment(
      pass, steps,
      [&](DeviceLaunch launch, const DeviceSegment&, const LambStep* own, cudaStream_t stream) {
        launch.ratios = ratios.const_data_ptr<float>();
        launch_step(launch, own, stream);
      });
}

}  // namespace fullshard::optim
