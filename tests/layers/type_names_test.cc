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

TEST(TypeNames, AreDefinedInOneHeaderOnly) {
  const std::regex definition(
      R"(^(?:struct|class|enum class) ([A-Z]\w*)(?: final)?(?: :.*)? \{.*)");
  std::map<std::string, std::vector<std::string>> places;
  const std::filesystem::path root = FULLSHARD_SOURCE_ROOT "/fullshard";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    const std::string path = entry.path().string();
    if (entry.path().extension() != ".h" || path.find("gloo_declarations") != std::string::npos) {
      continue;
    }
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      std::smatch match;
      if (std::regex_match(line, match, definition)) places[match[1]].push_back(path);
    }
  }
  EXPECT_GT(places.size(), 300U);
  for (const auto& [name, files] : places) {
    EXPECT_EQ(files.size(), 1U) << name << " in " << testing::PrintToString(files);
  }
}

}  // namespace
}  // namespace fullshard::layers
