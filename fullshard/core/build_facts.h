// What `fullshard doctor` cannot know, because it does not link libtorch.
#pragma once

namespace fullshard {

// `fullshard-core facts`: one line per fact, "subject<TAB>found<TAB>meaning".
int print_build_facts();

}  // namespace fullshard
