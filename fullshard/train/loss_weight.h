// SPDX-License-Identifier: Apache-2.0
// Means over labels when ranks or micro-batches hold different numbers of them: the average of mean
// losses is then not the mean over all labels, unless each is weighed by its share.
#pragma once

#include <cstdint>
#include <vector>

#include "fullshard/comm/communicator.h"

namespace fullshard {

// Collective. What this rank's mean loss is multiplied with before backward, so that the engine's
// average over ranks is the mean over all labels: own * ranks / total.
double loss_weight(const Communicator& communicator, int64_t own_labels);

// The same for all micro-batches of one optimizer step; every rank has as many. The average over
// ranks and micro-batches is then the mean over all labels.
std::vector<double> loss_weights(const Communicator& communicator,
                                 const std::vector<int64_t>& own_labels);

}  // namespace fullshard
