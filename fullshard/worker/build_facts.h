// SPDX-License-Identifier: Apache-2.0
// What `fullshard doctor` cannot know, because it does not link libtorch.
#pragma once

namespace fullshard::worker {

// `fullshard-core facts`: one line per fact, "subject<TAB>found<TAB>meaning".
int print_build_facts();

}  // namespace fullshard::worker
