// SPDX-License-Identifier: Apache-2.0
// Notices a parameter that came into the module tree after shard(): it is neither gathered nor
// trained nor saved, and a model with it would learn less than its user thinks.
#pragma once

#include <cstdint>
#include <string>

#include "fullshard/engine/plan/wrap.h"

namespace fullshard::engine {

class RegisteredParameters {
 public:
  // Once the parameters of `plan` are those of shards. Both outlive it.
  RegisteredParameters(torch::nn::Module& root, const WrapPlan& plan, std::string ignored_modules);

  // An error that names the first one that came later, where no ignored module has it. While
  // nothing changes this costs nanoseconds per module.
  void check() const;

 private:
  std::string first_unknown() const;

  torch::nn::Module& root_;
  const WrapPlan& plan_;
  std::string ignored_modules_;
  mutable uint64_t print_;
};

}  // namespace fullshard::engine
