// SPDX-License-Identifier: Apache-2.0
// Two types of one name in two headers of one namespace are one type to the linker: their inline
// functions are merged, and memory is corrupted without a word.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <string>
#include <vector>

namespace fullshard::layers {
namespace {

// The type that a line begins to define at the outermost level; empty: none. A declaration that
// ends there, and a specialisation, defines none.
std::string type_defined_by(const std::string& line) {
  static const std::regex definition(
      R"(^(?:struct|class|union|enum class|enum struct|enum)(?: alignas\([^)]*\)| \[\[.*\]\])*)"
      R"( ([A-Z]\w*)(?: final)?(?: :.*)?(?: \{.*)?$)");
  std::smatch match;
  const bool ends = line.ends_with(";") && line.find('{') == std::string::npos;
  return !ends && std::regex_match(line, match, definition) ? match[1].str() : "";
}

TEST(TypeNames, AreSeenInEveryWayToWriteADefinition) {
  for (const std::string line :
       {"struct Place {", "class Place {", "union Place {", "enum Place {", "enum class Place {",
        "enum class Place : uint32_t { first };", "struct Place { int32_t region; };",
        "struct alignas(64) Place {", "class alignas(kLine) Place final : public Base {",
        "struct [[nodiscard]] Place {", "class Place", "class Place final",
        "class Place : public A,", "struct Place : A<B> {"}) {
    EXPECT_EQ(type_defined_by(line), "Place") << line;
  }
  for (const std::string line :
       {"struct Place;", "class Place;", "  struct Place {", "struct Place<int> {",
        "enum class Place : uint32_t;", "Place {"}) {
    EXPECT_EQ(type_defined_by(line), "") << line;
  }
}

TEST(TypeNames, AreDefinedInOneHeaderOnly) {
  std::map<std::string, std::vector<std::string>> places;
  const std::filesystem::path root = FULLSHARD_SOURCE_ROOT "/fullshard";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    const std::string path = entry.path().string();
    if (entry.path().extension() != ".h" || path.find("gloo_declarations") != std::string::npos) {
      continue;
    }
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      const std::string name = type_defined_by(line);
      if (!name.empty()) places[name].push_back(path);
    }
  }
  EXPECT_GT(places.size(), 300U);
  for (const auto& [name, files] : places) {
    EXPECT_EQ(files.size(), 1U) << name << " in " << testing::PrintToString(files);
  }
}

}  // namespace
}  // namespace fullshard::layers
