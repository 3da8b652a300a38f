// SPDX-License-Identifier: Apache-2.0
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <map>
#include <sstream>
#include <utility>

#include "fullshard/config/document/reader.h"

namespace fullshard::config {
namespace {

class YamlConverter {
 public:
  YamlConverter(const std::string& name, Problems& problems) : name_(name), problems_(problems) {}

  ConfigNode convert(const YAML::Node& node, int line, int depth) {
    const YAML::Mark mark = node.Mark();
    if (mark.line >= 0) line = mark.line + 1;
    ConfigNode result;
    result.line = line;
    if (++nodes_ > kMaxConfigNodes || depth > kMaxConfigDepth) {
      report_once(line, nodes_ > kMaxConfigNodes
                            ? fmt::format("more than {} values", kMaxConfigNodes)
                            : fmt::format("nested more than {} deep", kMaxConfigDepth));
      return result;
    }
    check_tag(node, line);
    switch (node.Type()) {
      case YAML::NodeType::Scalar:
        // Quoted scalars carry the tag "!".
        result = node.Tag() == "!" ? ConfigNode::of_text(node.Scalar())
                                   : ConfigNode::of_plain(node.Scalar(), true);
        result.line = line;
        return result;
      case YAML::NodeType::Sequence:
        result.kind = NodeKind::list;
        for (const YAML::Node& item : node) result.items.push_back(convert(item, line, depth + 1));
        return result;
      case YAML::NodeType::Map:
        result.kind = NodeKind::map;
        convert_members(node, result, depth);
        return result;
      default:
        return result;
    }
  }

 private:
  void report(int line, std::string message, std::string key = "", std::string suggestion = "") {
    problems_.errors.push_back({.file = name_,
                                .line = line,
                                .key = std::move(key),
                                .message = std::move(message),
                                .suggestion = std::move(suggestion)});
  }
  void report_once(int line, std::string message) {
    if (!std::exchange(is_too_large_, true)) report(line, std::move(message));
  }

  void check_tag(const YAML::Node& node, int line) {
    const std::string& tag = node.Tag();
    if (tag.empty() || tag == "?" || tag == "!") return;
    report(line, fmt::format("tag {} is not supported", tag), "", "write the value without a tag");
  }

  void convert_members(const YAML::Node& node, ConfigNode& result, int depth) {
    std::vector<ConfigNode> merged;
    std::map<std::string, int> lines;  // lines of the names so far
    for (const auto& pair : node) {
      const int line = pair.first.Mark().line + 1;
      if (!pair.first.IsScalar()) {
        report(line,
               fmt::format("a key that is {}", pair.first.IsNull() ? "empty" : "not a string"));
        continue;
      }
      const std::string& key = pair.first.Scalar();
      ConfigNode value = convert(pair.second, line, depth + 1);
      if (key == "<<" && value.kind == NodeKind::map) {
        merged.push_back(std::move(value));
        continue;
      }
      if (const auto [first, is_new] = lines.try_emplace(key, line); is_new) {
        result.members.push_back({key, line, std::move(value)});
      } else {
        report(line, fmt::format("given twice, first on line {}", first->second), key,
               "keep one of them");
      }
      if (is_too_large_) return;
    }
    for (ConfigNode& map : merged) {
      for (Member& member : map.members) {
        if (lines.try_emplace(member.name, member.line).second) {
          result.members.push_back(std::move(member));
        }
      }
    }
  }

  const std::string& name_;
  Problems& problems_;
  int nodes_ = 0;
  bool is_too_large_ = false;
};

// Records only where a document starts.
class DocumentStart : public YAML::EventHandler {
 public:
  int line = 0;

  void OnDocumentStart(const YAML::Mark& mark) override { line = mark.line + 1; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};

// 0 when there is none. Not YAML::LoadAll, which never returns on text after a flow map.
int line_of_second_document(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  DocumentStart start;
  if (!parser.HandleNextDocument(start)) return 0;
  return parser.HandleNextDocument(start) ? start.line : 0;
}

}  // namespace

std::optional<ConfigNode> read_yaml(std::string_view text, const std::string& name,
                                    Problems& problems) {
  try {
    std::string copy(text);
    if (const int line = line_of_second_document(copy); line > 0) {
      problems.errors.push_back({.file = name,
                                 .line = line,
                                 .message = "text after the end of the first YAML document",
                                 .suggestion = "keep one document"});
      return std::nullopt;
    }
    return YamlConverter(name, problems).convert(YAML::Load(copy), 1, 0);
  } catch (const YAML::Exception& error) {
    problems.errors.push_back(
        {.file = name,
         .line = error.mark.line >= 0 ? error.mark.line + 1 : 0,
         .message = error.mark.column >= 0
                        ? fmt::format("{} at column {}", error.msg, error.mark.column + 1)
                        : error.msg});
    return std::nullopt;
  }
}

}  // namespace fullshard::config
