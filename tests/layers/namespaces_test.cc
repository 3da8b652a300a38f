// SPDX-License-Identifier: Apache-2.0
// fullshard:: is what users call; everything else lies in the namespace of its folder.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace fullshard::layers {
namespace {

using ::testing::IsEmpty;

const std::filesystem::path kSources(FULLSHARD_SOURCE_ROOT);

std::string text_of(const std::string& path) {
  std::ifstream file(kSources / path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> matches(const std::string& text, const std::regex& pattern) {
  std::vector<std::string> result;
  for (std::sregex_iterator at(text.begin(), text.end(), pattern), end; at != end; ++at) {
    result.push_back((*at)[1]);
  }
  return result;
}

// "fullshard/comm/world/mesh.h" -> "comm"
std::string folder_of_header(const std::string& path) {
  const auto begin = path.find('/') + 1;
  return path.substr(begin, path.find('/', begin) - begin);
}

std::vector<std::string> internal_headers() {
  std::vector<std::string> result;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kSources / "fullshard")) {
    const auto path = std::filesystem::relative(entry.path(), kSources).generic_string();
    const bool is_in_folder = std::count(path.begin(), path.end(), '/') > 1;
    if (path.ends_with(".h") && is_in_folder && path.find("declarations/") == std::string::npos) {
      result.push_back(path);
    }
  }
  return result;
}

std::set<std::string> namespaces_of(const std::string& path) {
  static const std::regex pattern(R"((?:^|\n)namespace (fullshard[\w:]*) \{)");
  const auto found = matches(text_of(path), pattern);
  return {found.begin(), found.end()};
}

// What stands between the beginning and the end of each block. Found without a pattern: one that
// spans lines would take a stack frame for every character.
std::vector<std::string> blocks_in_fullshard(const std::string& text) {
  const std::string begin = "\nnamespace fullshard {", end = "\n}  // namespace fullshard\n";
  std::vector<std::string> bodies;
  for (size_t at = text.find(begin); at != std::string::npos; at = text.find(begin, at)) {
    at += begin.size();
    const size_t last = text.find(end, at);
    if (last == std::string::npos) break;
    bodies.push_back(text.substr(at, last - at));
  }
  return bodies;
}

// Whether the header declares more than names of others in fullshard itself.
bool declares_in_fullshard(const std::string& path) {
  static const std::regex forward(R"(\n(?:class|struct|enum class) \w+;[^\n]*)");
  for (const auto& body : blocks_in_fullshard(text_of(path))) {
    const auto rest = std::regex_replace(body, forward, "");
    if (rest.find_first_not_of(" \n") != std::string::npos) return true;
  }
  return false;
}

void add_included(const std::string& path, std::set<std::string>& seen) {
  static const std::regex include(R"(\n#include "(fullshard/[^"]+)\")");
  for (const auto& other : matches(text_of(path), include)) {
    if (seen.insert(other).second) add_included(other, seen);
  }
}

TEST(Namespaces, AreThoseOfTheirFolders) {
  std::vector<std::string> wrong;
  for (const auto& path : internal_headers()) {
    const auto own = "fullshard::" + folder_of_header(path);
    for (const auto& name : namespaces_of(path)) {
      const bool is_forward_only = name != own && !declares_in_fullshard(path);
      if (name == "fullshard" || name == own || name.starts_with(own + "::") || is_forward_only)
        continue;
      if (text_of(path).find("namespace " + own + " {") == std::string::npos &&
          !declares_in_fullshard(path)) {
        wrong.push_back(fmt::format("{}: declares in {}, expected {}", path, name, own));
      }
    }
    if (namespaces_of(path).empty() && path.find("/cuda/") == std::string::npos) {
      const bool is_macros_only = text_of(path).find("#define") != std::string::npos;
      if (!is_macros_only) wrong.push_back(path + ": declares in no namespace of fullshard");
    }
  }
  EXPECT_THAT(wrong, IsEmpty());
}

TEST(Namespaces, LeaveAtMostAFifthOfTheHeadersInFullshardItself) {
  const auto headers = internal_headers();
  const auto num_public =
      static_cast<size_t>(std::count_if(headers.begin(), headers.end(), declares_in_fullshard));
  EXPECT_GT(num_public, 0U);
  EXPECT_LE(num_public * 5, headers.size()) << num_public << " of " << headers.size();
}

TEST(Namespaces, OfUsersAreSeenByThem) {
  std::set<std::string> seen;
  add_included("fullshard/fullshard.h", seen);
  std::vector<std::string> unseen;
  for (const auto& path : internal_headers()) {
    const bool is_behind_a_handle = path.ends_with("_impl.h");
    if (declares_in_fullshard(path) && !seen.contains(path) && !is_behind_a_handle) {
      unseen.push_back(path);
    }
  }
  EXPECT_THAT(unseen, IsEmpty()) << "declared in fullshard::, and not reached from fullshard.h";
}

}  // namespace
}  // namespace fullshard::layers
