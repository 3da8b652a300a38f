// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/real_path.h"

#include <cstdlib>
#include <memory>

namespace fullshard::base {
namespace {

std::string real_path(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr),
                                                         &std::free);
  return real ? real.get() : "";
}

}  // namespace

bool lies_in(const std::string& path, const std::string& folder) {
  const std::string real = real_path(path), outer = real_path(folder);
  return !real.empty() && !outer.empty() && (real + "/").starts_with(outer + "/");
}

}  // namespace fullshard::base
