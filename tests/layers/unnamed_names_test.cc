// SPDX-License-Identifier: Apache-2.0
// Sources that are compiled together share one unnamed namespace. Two functions of one name there
// are overloads of each other: a call could take the wrong one without a word.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

namespace fullshard::layers {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;
using Words = std::set<std::string>;
using Names = std::map<std::string, std::string>;  // an alias with its meaning, others with ""

// Of "constexpr int kFirst = 1, kSecond = 2;" the second, too.
void add_constants(const std::string& line, Names& names) {
  static const std::regex constant(R"(\b(k[A-Z]\w*)(?: =|\{|\[))");
  if (!line.starts_with("const")) return;
  const std::sregex_iterator first(line.begin(), line.end(), constant), last;
  for (auto match = first; match != last; ++match) names.emplace((*match)[1], "");
}

// What a source defines in its unnamed namespace. Relies on the layout: definitions begin lines.
Names unnamed_names(std::istream& source) {
  static const std::regex type(R"(^(?:struct|class|enum class|using) (\w+)(?: .*|;)?$)");
  static const std::regex other(R"(^[^=("']*?\b(\w+) ?(?:\(|=|\{|;|\[(?!\[)).*)");
  static const Words no_names = {"void", "bool", "int", "operator", "const", "using"};
  Names names;
  bool is_inside = false;
  for (std::string line; std::getline(source, line);) {
    if (line == "namespace {") is_inside = true;
    if (line == "}  // namespace") is_inside = false;
    const bool begins = !line.empty() && (std::isalpha(line[0]) != 0 || line[0] == '[');
    if (!is_inside || !begins || line.starts_with("namespace")) continue;
    add_constants(line, names);
    std::smatch match;
    if (line.starts_with("using ") && line.find(" = ") == std::string::npos) continue;
    if (!std::regex_match(line, match, type) && !std::regex_match(line, match, other)) continue;
    const std::string name = match[1];
    const bool is_macro = name.find_first_of("abcdefghijklmnopqrstuvwxyz") == std::string::npos;
    const bool is_alias = line.starts_with("using ");
    const std::string meaning = is_alias ? line.substr(0, line.find(';')) : "";
    if (!is_macro && !no_names.contains(name)) names.emplace(name, meaning);
  }
  return names;
}

TEST(UnnamedNames, AreFoundInASource) {
  std::istringstream source(R"(int outside(int a) {
namespace {

using ::testing::HasSubstr;
using json = nlohmann::json;
constexpr int64_t kBlock = 1 << 20, kHalf = kBlock / 2;
constexpr std::string_view kLight[] = {"a"};
struct Case {
  int field = 0;
};
enum class Vote { yes, no };
FULLSHARD_UNIT(Net);
[[gnu::always_inline]] inline void copy_line(std::byte* to) {
  inner(to);
}
template <class Act>
std::map<std::string, int> sorted(const Act& act,
                                  int more) {
TEST(Suite, Name) {
}  // namespace
int outside_too;
)");
  EXPECT_THAT(unnamed_names(source),
              UnorderedElementsAre(Pair("json", "using json = nlohmann::json"), Pair("kBlock", ""),
                                   Pair("kHalf", ""), Pair("kLight", ""), Pair("Case", ""),
                                   Pair("Vote", ""), Pair("copy_line", ""), Pair("sorted", "")));
}

struct Definition {
  std::string file, meaning;
};

// Definitions that cannot stand side by side: all but repeated aliases of one type.
std::vector<std::string> files_that_clash(const std::vector<Definition>& definitions) {
  std::vector<std::string> files;
  bool is_one_alias = true;
  for (const Definition& definition : definitions) {
    files.push_back(definition.file);
    is_one_alias &= !definition.meaning.empty() && definition.meaning == definitions[0].meaning;
  }
  if (is_one_alias || files.size() == 1) files.clear();
  return files;
}

TEST(UnnamedNames, OnlyAliasesOfOneTypeMayBeRepeated) {
  EXPECT_THAT(files_that_clash({{"a.cc", ""}}), IsEmpty());
  EXPECT_THAT(files_that_clash({{"a.cc", ""}, {"b.cc", ""}}), ElementsAre("a.cc", "b.cc"));
  EXPECT_THAT(files_that_clash({{"a.cc", "using A = int"}, {"b.cc", "using A = int"}}), IsEmpty());
  EXPECT_THAT(files_that_clash({{"a.cc", "using A = int"}, {"b.cc", "using A = char"}}),
              ElementsAre("a.cc", "b.cc"));
}

// "fullshard_shard" -> "fullshard/shard", "engine_test" -> "tests/shard"
std::filesystem::path folder_of(const std::string& target) {
  const std::filesystem::path root = FULLSHARD_SOURCE_ROOT;
  const std::string library = "fullshard_", test = "_test";
  if (target.starts_with(library)) return root / "fullshard" / target.substr(library.size());
  return root / "tests" / target.substr(0, target.size() - test.size());
}

TEST(UnnamedNames, AreDefinedOnceAmongSourcesThatAreCompiledTogether) {
  std::istringstream targets(FULLSHARD_COMPILED_TOGETHER);
  int num_names = 0;
  for (std::string target; std::getline(targets, target, ' ');) {
    std::map<std::string, std::vector<Definition>> places;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_of(target))) {
      const std::string name = entry.path().filename().string();
      // Kernels and main.cc are compiled by themselves.
      if (!name.ends_with(".cc") || name.ends_with("_kernels.cc") || name == "main.cc") continue;
      std::ifstream file(entry.path());
      for (const auto& [defined, meaning] : unnamed_names(file)) {
        places[defined].push_back({name, meaning});
      }
    }
    num_names += static_cast<int>(places.size());
    for (const auto& [name, definitions] : places) {
      EXPECT_THAT(files_that_clash(definitions), IsEmpty())
          << target << ": " << name << " is defined in several unnamed namespaces; rename one, or "
          << "share it through a header";
    }
  }
  EXPECT_GT(num_names, 2000);
}

}  // namespace
}  // namespace fullshard::layers
