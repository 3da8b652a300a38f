// SPDX-License-Identifier: Apache-2.0
// Updates that run beside the caller's stream, because states pass through windows: what a group
// waits for, and how an optimizer issues them.
#pragma once

#include <functional>
#include <vector>

#include "fullshard/memory/lane.h"

namespace fullshard {
struct PieceView;
}  // namespace fullshard

namespace fullshard::engine {

struct StreamedUpdate {
  memory::LaneMark updated;  // the master's values are there, and gradients no longer used
  memory::LaneMark stored;   // what rests on the host is there too; behind `updated`
};

// For ShardedModel::update. The groups that `streams` names are issued in the order in which
// forwards need them; the next use of each waits for its own update.
struct StreamedUpdates {
  std::function<bool(int group)> streams = [](int) { return false; };
  std::function<void()> start = [] {};  // before the first of them
  // Writes what is shown, too.
  std::function<StreamedUpdate(int group, const std::vector<PieceView>& pieces, double factor)>
      issue = {};
};

}  // namespace fullshard::engine
