// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "fullshard/text/chat/string_functions.h"
#include "fullshard/text/chat/template_node.h"

namespace fullshard::text::chat {
namespace {

enum class Flow { on, leave, next };

constexpr size_t kMostText = size_t{64} << 20;  // bytes; a template that writes more is broken

class TemplateRenderer {
 public:
  RenderedText take() { return std::move(output_); }

  Flow render(const std::vector<TemplateNode>& nodes, TemplateScope& scope) {
    for (const TemplateNode& node : nodes) {
      const Flow flow = render(node, scope);
      if (flow != Flow::on) return flow;
    }
    return Flow::on;
  }

 private:
  Flow render(const TemplateNode& node, TemplateScope& scope) {
    scope.state().count(node.line);
    switch (node.kind) {
      case TemplateNodeKind::text:
        scope.state().count_bytes(node.line, node.text.size());
        write(node.text, node.line);
        return Flow::on;
      case TemplateNodeKind::print:
        write(evaluate(*node.expression, scope).text(scope.state(), node.line), node.line);
        return Flow::on;
      case TemplateNodeKind::set:
        set(node, scope);
        return Flow::on;
      case TemplateNodeKind::condition:
        return choose(node, scope);
      case TemplateNodeKind::loop:
        return loop(node, scope);
      case TemplateNodeKind::leave_loop:
        return Flow::leave;
      case TemplateNodeKind::next_in_loop:
        return Flow::next;
      case TemplateNodeKind::macro:
        scope.state().define_macro(node.names[0], node);
        return Flow::on;
      case TemplateNodeKind::generation:
        break;
    }
    const size_t begin = output_.text.size();
    const Flow flow = render(node.body, scope);
    output_.generated.push_back({begin, output_.text.size()});
    return flow;
  }

  void write(const std::string& text, int64_t line) {
    if (output_.text.size() + text.size() > kMostText) {
      refuse_template(line, "the text grows too long");
    }
    output_.text += text;
  }

  void set(const TemplateNode& node, TemplateScope& scope) {
    Value value;
    if (node.expression) {
      value = evaluate(*node.expression, scope);
    } else {
      value = render_nodes(node.body, scope).text;
    }
    if (!node.sets_attribute) return scope.set(node.names[0], std::move(value));
    const Value* space = scope.find(node.names[0]);
    if (space == nullptr || !space->is_map() || !space->map().is_namespace) {
      refuse_template(node.line, "attributes can be set on a namespace only; {} is not one",
                      node.names[0]);
    }
    space->set(node.names[1], std::move(value));
  }

  Flow choose(const TemplateNode& node, TemplateScope& scope) {
    for (const auto& branch : node.branches) {
      if (branch.test && !evaluate(*branch.test, scope).truth()) continue;
      return render(branch.body, scope);
    }
    return Flow::on;
  }

  ValueList looped_over(const TemplateNode& node, const TemplateScope& scope) {
    const Value value = evaluate(*node.expression, scope);
    ValueList items;
    if (value.is_list()) {
      items = value.list();
    } else if (value.is_map()) {
      for (const auto& [key, item] : value.map().entries) items.emplace_back(key);
    } else if (value.is_string()) {
      RenderState::check_list(node.line, static_cast<size_t>(num_characters(value.string())));
      for (std::string& letter : characters_of(value.string())) items.emplace_back(letter);
    } else if (!value.is_undefined()) {
      refuse_template(node.line, "cannot loop over {}", value.type_name());
    }
    if (node.filter) {
      std::erase_if(items, [&](const Value& item) {
        TemplateScope own(&scope);
        name_item(node, item, own);
        return !evaluate(*node.filter, own).truth();
      });
    }
    return items;
  }

  static void name_item(const TemplateNode& node, const Value& item, TemplateScope& scope) {
    if (node.names.size() == 1) return scope.set(node.names[0], item);
    if (!item.is_list() || item.list().size() != node.names.size()) {
      refuse_template(node.line, "a loop has {} names, but its items do not have as many parts",
                      node.names.size());
    }
    for (size_t i = 0; i < node.names.size(); ++i) scope.set(node.names[i], item.list()[i]);
  }

  static Value loop_facts(const ValueList& items, size_t index) {
    const auto place = static_cast<int64_t>(index), count = std::ssize(items);
    ValueMap facts;
    facts.entries = {{"index", place + 1},
                     {"index0", place},
                     {"revindex", count - place},
                     {"revindex0", count - place - 1},
                     {"first", place == 0},
                     {"last", place == count - 1},
                     {"length", count},
                     {"previtem", index == 0 ? Value() : items[index - 1]},
                     {"nextitem", place == count - 1 ? Value() : items[index + 1]}};
    return facts;
  }

  // Variables that are set inside are dropped after every item, as in Jinja.
  Flow loop(const TemplateNode& node, TemplateScope& scope) {
    const ValueList items = looped_over(node, scope);
    if (items.empty()) return render(node.otherwise, scope);
    for (size_t index = 0; index < items.size(); ++index) {
      scope.state().count_loop(node.line);
      TemplateScope own(&scope);
      own.set("loop", loop_facts(items, index));
      name_item(node, items[index], own);
      if (render(node.body, own) == Flow::leave) break;
    }
    return Flow::on;
  }

  RenderedText output_;
};

const Value* named_value(const ValueEntries& named, const std::string& name) {
  const auto found = std::ranges::find(named, name, &ValueEntries::value_type::first);
  return found == named.end() ? nullptr : &found->second;
}

}  // namespace

RenderedText render_nodes(const std::vector<TemplateNode>& nodes, TemplateScope& scope) {
  TemplateRenderer renderer;
  renderer.render(nodes, scope);
  return renderer.take();
}

bool marks_generation(const std::vector<TemplateNode>& nodes) {
  return std::ranges::any_of(nodes, [](const TemplateNode& node) {
    return node.kind == TemplateNodeKind::generation || marks_generation(node.body) ||
           marks_generation(node.otherwise) ||
           std::ranges::any_of(node.branches,
                               [](const auto& branch) { return marks_generation(branch.body); });
  });
}

Value call_macro(const TemplateNode& macro, const ValueList& arguments, const ValueEntries& named,
                 const TemplateScope& scope, int64_t line) {
  const RenderState::Call call(scope.state(), line);
  const size_t num_parameters = macro.names.size() - 1;
  if (arguments.size() > num_parameters) {
    refuse_template(line, "the macro {} takes {} arguments, but is given {}", macro.names[0],
                    num_parameters, arguments.size());
  }
  for (const auto& [name, value] : named) {
    if (std::ranges::find(macro.names.begin() + 1, macro.names.end(), name) == macro.names.end()) {
      refuse_template(line, "the macro {} has no argument {}", macro.names[0], name);
    }
  }
  TemplateScope own(&scope.outermost());
  for (size_t i = 0; i < num_parameters; ++i) {
    const std::string& name = macro.names[i + 1];
    const Value* given = i < arguments.size() ? &arguments[i] : named_value(named, name);
    const auto& otherwise = macro.defaults[i];
    own.set(name, given != nullptr ? *given : otherwise ? evaluate(*otherwise, own) : Value());
  }
  return render_nodes(macro.body, own).text;
}

}  // namespace fullshard::text::chat
