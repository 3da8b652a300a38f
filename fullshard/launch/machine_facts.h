// SPDX-License-Identifier: Apache-2.0
// What this machine gives a run, each fact with what it means. What libtorch can do here is asked
// of fullshard-core, which links it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fullshard::launch {

struct Fact {
  enum class Kind { fine, notice, problem };
  std::string subject;  // "cores"
  std::string found;    // "2 of 8 (a control group allows 1.5)"
  std::string meaning;
  Kind kind = Kind::fine;
};

std::string_view name_of(Fact::Kind kind);  // ok, note, bad

std::vector<Fact> machine_facts();
std::string facts_text(const std::vector<Fact>& facts);

}  // namespace fullshard::launch
