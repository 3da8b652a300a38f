// SPDX-License-Identifier: Apache-2.0
// The mathematics of the optimizers on whole fp64 tensors, written naively. `options_of` gives the
// settings of a step, counted from 1, so that they may change.
#pragma once

#include <functional>

#include "fullshard/optim/adagrad.h"
#include "fullshard/optim/adamw.h"
#include "fullshard/optim/lamb.h"
#include "fullshard/optim/lion.h"
#include "fullshard/optim/one_bit_adam.h"
#include "fullshard/optim/sgd.h"
#include "tests/optim/fixed_gradients.h"

namespace fullshard::testing {

template <class Options>
using OptionsOf = std::function<Options(int step)>;

NaiveStep naive_adam(const OptionsOf<AdamWOptions>& options_of);
NaiveStep naive_sgd(const OptionsOf<SgdOptions>& options_of);
NaiveStep naive_adagrad(const OptionsOf<AdagradOptions>& options_of);
NaiveStep naive_lion(const OptionsOf<LionOptions>& options_of);
NaiveStep naive_lamb(const OptionsOf<LambOptions>& options_of);
// On one rank, where nothing is compressed. Its rules may give weight decays.
NaiveStep naive_one_bit_adam(const OptionsOf<OneBitAdamOptions>& options_of);

template <class Options>
OptionsOf<Options> always(const Options& options) {
  return [=](int) { return options; };
}

}  // namespace fullshard::testing
