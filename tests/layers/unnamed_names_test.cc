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
using ::testing::UnorderedElementsAre;
using Names = std::set<std::string>;

// What a source defines in its unnamed namespace. Relies on the layout: definitions begin lines.
Names unnamed_names(std::istream& source) {
  static const std::regex type(R"(^(?:struct|class|enum class|using) (\w+)(?: .*|;)?$)");
  static const std::regex other(R"(^[^=("']*?\b(\w+) ?(?:\(|=|\{|;|\[(?!\[)).*)");
  static const Names no_names = {"void", "bool", "int", "operator", "const", "using"};
  Names names;
  bool is_inside = false;
  for (std::string line; std::getline(source, line);) {
    if (line == "namespace {") is_inside = true;
    if (line == "}  // namespace") is_inside = false;
    const bool begins = !line.empty() && (std::isalpha(line[0]) != 0 || line[0] == '[');
    if (!is_inside || !begins || line.starts_with("namespace")) continue;
    std::smatch match;
    if (line.starts_with("using ") && line.find(" = ") == std::string::npos) continue;
    if (!std::regex_match(line, match, type) && !std::regex_match(line, match, other)) continue;
    const std::string name = match[1];
    const bool is_macro = name.find_first_of("abcdefghijklmnopqrstuvwxyz") == std::string::npos;
    if (!is_macro && !no_names.contains(name)) names.insert(name);
  }
  return names;
}

TEST(UnnamedNames, AreFoundInASource) {
  std::istringstream source(R"(int outside(int a) {
namespace {

using ::testing::HasSubstr;
using json = nlohmann::json;
constexpr int64_t kBlock = 1 << 20;
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
  EXPECT_THAT(unnamed_names(source), UnorderedElementsAre("json", "kBlock", "kLight", "Case",
                                                          "Vote", "copy_line", "sorted"));
}

// "fullshard_shard" -> "fullshard/shard", "shard_test" -> "tests/shard"
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
    std::map<std::string, std::vector<std::string>> places;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_of(target))) {
      const std::string name = entry.path().filename().string();
      // Kernels and main.cc are compiled by themselves.
      if (!name.ends_with(".cc") || name.ends_with("_kernels.cc") || name == "main.cc") continue;
      std::ifstream file(entry.path());
      for (const auto& defined : unnamed_names(file)) places[defined].push_back(name);
    }
    num_names += static_cast<int>(places.size());
    for (const auto& [name, files] : places) {
      EXPECT_THAT(files, ElementsAre(::testing::_))
          << target << ": " << name << " is defined in several unnamed namespaces; rename one, or "
          << "share it through a header";
    }
  }
  EXPECT_GT(num_names, 900);
}

}  // namespace
}  // namespace fullshard::layers
