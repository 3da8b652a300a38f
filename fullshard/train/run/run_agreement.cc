// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run/run_agreement.h"

#include <nlohmann/json.hpp>

#include "fullshard/base/error.h"
#include "fullshard/engine/storage/agreement.h"

namespace fullshard::train {

void check_alike(const Communicator& everyone,
                 const std::vector<std::pair<std::string, std::string>>& facts) {
  if (engine::is_alone(everyone)) return;
  using Json = nlohmann::json;
  const std::string own = Json(facts).dump(-1, ' ', false, Json::error_handler_t::replace);
  const auto texts = engine::gather_texts(everyone, own, "the comparison of settings");
  for (int rank = 1; rank < everyone.size(); ++rank) {
    const auto place = static_cast<size_t>(rank);
    if (texts[place] == texts[0]) continue;
    const auto first = Json::parse(texts[0]), other = Json::parse(texts[place]);
    size_t i = 0;
    while (i < first.size() && i < other.size() && first[i] == other[i]) ++i;
    const auto told = [i](const Json& all) {
      return i < all.size() ? all[i][0].get<std::string>() + " " + all[i][1].get<std::string>()
                            : "nothing more";
    };
    fail_as(ErrorKind::usage,
            "ranks disagree: rank 0 has {}, rank {} has {}; start all of them with the same flags, "
            "configuration and data",
            told(first), rank, told(other));
  }
}

}  // namespace fullshard::train
