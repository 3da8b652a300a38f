// SPDX-License-Identifier: Apache-2.0
// A little of what a run begins with, as a number that ranks compare: files of one name and size
// may hold other things on another host.
#pragma once

#include <string>

#include "fullshard/data/dataset.h"

namespace fullshard::train {

// Of examples from the whole of it.
std::string sample_of(const Dataset& data);

// Of the values at the beginning of some of its tensors; `folder` as open_weights() takes it.
std::string sample_of_weights(const std::string& folder);

}  // namespace fullshard::train
