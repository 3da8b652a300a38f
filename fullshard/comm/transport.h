// SPDX-License-Identifier: Apache-2.0
// What carries a whole world's collectives: makes the backends of its groups, and tells the other
// ranks when this one ends. One per rank.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard::comm {

class Backend;

class Transport {
 public:
  virtual ~Transport() = default;

  virtual std::string_view name() const = 0;
  // `groups` cuts all ranks into groups of equal size; gives the backend of the group that holds
  // this rank. All ranks call it in the same order with the same groups.
  virtual std::shared_ptr<Backend> make_backend(const std::vector<std::vector<int>>& groups,
                                                const std::string& name) = 0;
  // This rank makes no more calls; an empty reason means that it ended well.
  virtual void leave(const std::string& reason) noexcept = 0;
  // An Error once calls on an accelerator were given up: what it holds is worth nothing then.
  virtual void check_sound() const {}
};

}  // namespace fullshard::comm
