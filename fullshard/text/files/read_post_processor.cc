// SPDX-License-Identifier: Apache-2.0
#include "fullshard/text/files/tokenizer_json.h"

namespace fullshard::text {
namespace {

// ["[SEP]", 102]
int32_t id_of_pair(const JsonNode& node) { return node.item(1).id(); }

void read_template(const JsonNode& node, PostProcessor& processor) {
  node.only({"type", "single", "pair", "special_tokens"});
  const JsonNode single = node.at("single");
  const JsonNode special = node.at("special_tokens");
  std::vector<int32_t> stage;
  for (size_t i = 0; i < single.size(); ++i) {
    const JsonNode item = single.item(i);
    if (const auto sequence = item.get("Sequence")) {
      if (sequence->at("id").text() != "A") sequence->at("id").refuse("expected \"A\"");
      stage.push_back(PostProcessor::kText);
      continue;
    }
    const JsonNode ids = special.at(item.at("SpecialToken").at("id").text()).at("ids");
    for (size_t j = 0; j < ids.size(); ++j) stage.push_back(ids.item(j).id());
  }
  processor.add_stage(std::move(stage));
}

}  // namespace

void read_post_processor(const JsonNode& node, PostProcessor& processor, int depth) {
  const std::string type = node.at("type").text();
  if (type == "Sequence") {
    node.only({"type", "processors"});
    read_steps(node, "processors", depth, [&](const JsonNode& step, bool) {
      read_post_processor(step, processor, depth + 1);
      return 0;
    });
  } else if (type == "TemplateProcessing") {
    read_template(node, processor);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    node.only({"type", "sep", "cls", "trim_offsets", "add_prefix_space"});
    processor.add_stage(
        {id_of_pair(node.at("cls")), PostProcessor::kText, id_of_pair(node.at("sep"))});
  } else if (type == "ByteLevel") {  // changes offsets only
    node.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  } else {
    node.at("type").refuse_value(type);
  }
}

}  // namespace fullshard::text
