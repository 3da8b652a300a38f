// What this machine gives a run, each fact with what it means. What libtorch can do here is asked
// of fullshard-core, which links it.
#pragma once

#include <string>
#include <vector>

namespace fullshard {

struct Fact {
  enum class Kind { fine, notice, problem };
  std::string subject;  // "cores"
  std::string found;    // "2 of 8 (a control group allows 1.5)"
  std::string meaning;
  Kind kind = Kind::fine;
};

std::vector<Fact> machine_facts();
std::string facts_text(const std::vector<Fact>& facts);

}  // namespace fullshard
