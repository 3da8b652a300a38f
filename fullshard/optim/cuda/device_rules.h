// SPDX-License-Identifier: Apache-2.0
// The launches of the optimizers' CUDA kernels: raw pointers and a stream, no torch. One step is
// read once: gradient, unscale, clip, update, and master, states and shown values are written.
#pragma once

#include "fullshard/optim/cuda/device_piece.h"
#include "fullshard/optim/kernels/adagrad_rule.h"
#include "fullshard/optim/kernels/adamw_rule.h"
#include "fullshard/optim/kernels/lamb_rule.h"
#include "fullshard/optim/kernels/lion_rule.h"
#include "fullshard/optim/kernels/sgd_rule.h"
#include "fullshard/tensor/device_stream.h"

namespace fullshard::optim {

// `settings` are the launch's own, num_settings of them. The bits are those of the CPU.
void launch_step(const DeviceLaunch& launch, const AdamWStep* settings,
                 tensor::DeviceStream stream);
void launch_step(const DeviceLaunch& launch, const SgdStep* settings, tensor::DeviceStream stream);
void launch_step(const DeviceLaunch& launch, const AdagradStep* settings,
                 tensor::DeviceStream stream);
void launch_step(const DeviceLaunch& launch, const LionStep* settings, tensor::DeviceStream stream);

// LAMB's second pass; the step size of a setting is multiplied with its tensor's ratio.
void launch_step(const DeviceLaunch& launch, const LambStep* settings, tensor::DeviceStream stream);
// Its first pass: updates the states and leaves squares for each block of the launch.
void launch_moments(const DeviceLaunch& launch, const LambStep* settings,
                    tensor::DeviceStream stream);
// The squares of all blocks, summed in a fixed order: by_tensor[piece.tensor].
void launch_squares_by_tensor(const DevicePiece* pieces, int num_pieces, const LambSquares* squares,
                              LambSquares* by_tensor, tensor::DeviceStream stream);
// [shards][tensors] squares to trust ratios, shards added in order.
struct TrustRatioBounds {
  float least = 0;
  float most = 0;
};
void launch_trust_ratios(const LambSquares* by_shard, int num_shards, int num_tensors,
                         TrustRatioBounds bounds, float* ratios, tensor::DeviceStream stream);

}  // namespace fullshard::optim
