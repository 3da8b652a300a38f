// SPDX-License-Identifier: Apache-2.0
#include "fullshard/text/pipeline/post_processor.h"

namespace fullshard::text {

std::vector<int32_t> PostProcessor::apply(std::vector<int32_t> ids, bool special,
                                          const GrowthLimit& limit) const {
  for (const auto& stage : stages_) {
    std::vector<int32_t> result;
    result.reserve(ids.size() + stage.size());
    for (const int32_t item : stage) {
      if (item == kText) {
        result.insert(result.end(), ids.begin(), ids.end());
      } else if (special) {
        result.push_back(item);
      }
      limit.check_tokens(result.size());
    }
    ids = std::move(result);
  }
  return ids;
}

}  // namespace fullshard::text
