// SPDX-License-Identifier: Apache-2.0
// What this machine gives a run, each fact with what it means. fullshard-core, which links
// libtorch, says what libtorch can do here.
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
