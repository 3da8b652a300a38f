// SPDX-License-Identifier: Apache-2.0
// Conversations, compared with the output of transformers (tests/fixtures/text/make_chats.py).
#include "fullshard/text/chat/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "fullshard/text/chat/template_node.h"
#include "tests/errors.h"
#include "tests/files.h"

namespace fullshard::testing {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

const ordered_json& chats() {
  static const ordered_json found =
      ordered_json::parse(read_file(FULLSHARD_SOURCE_DIR "/tests/fixtures/text/chats.json"));
  return found;
}

const ChatTemplateOptions kTokens{.bos_token = "<s>", .eos_token = "</s>"};

class ChatTemplates : public ::testing::TestWithParam<std::string> {};

TEST_P(ChatTemplates, GiveTheTextOfTransformers) {
  const ChatTemplate chat(chats()["templates"][GetParam()].get<std::string>());
  int num_cases = 0;
  for (const auto& one : chats()["cases"]) {
    if (one["template"] != GetParam()) continue;
    ++num_cases;
    ChatTemplateOptions options = kTokens;
    options.add_generation_prompt = one["add_generation_prompt"].get<bool>();
    const auto& messages = chats()["conversations"][one["conversation"].get<std::string>()];
    if (one.contains("text")) {
      const auto rendered = chat.render_marked(messages, options);
      EXPECT_EQ(rendered.text, one["text"].get<std::string>()) << one["conversation"];
      ASSERT_EQ(chat.marks_generation(), one.contains("generated"));
      if (one.contains("generated")) {
        std::vector<text::chat::TextSpan> spans;
        for (const auto& span : one["generated"]) spans.push_back({span[0], span[1]});
        EXPECT_EQ(rendered.generated, spans) << one["conversation"];
      }
    } else {
      EXPECT_NE(message_of([&] { chat.render(messages, options); }), "no error")
          << one["conversation"];
    }
  }
  EXPECT_EQ(num_cases, 16);
}

std::vector<std::string> template_names() {
  std::vector<std::string> names;
  for (const auto& [name, text] : chats()["templates"].items()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Families, ChatTemplates, ::testing::ValuesIn(template_names()),
                         [](const auto& name) { return name.param; });

std::string rendered(const std::string& text) {
  return ChatTemplate(text).render(ordered_json::array(), kTokens);
}

TEST(ChatTemplate, PrintsWhatTransformersPrints) {
  // Escapes of strings.
  EXPECT_EQ(rendered(R"({{ "\u00e9\x41\U0001F600\101\a\b\f\v\q" }})"),
            "\u00e9A\U0001F600A\a\b\f\v\\q");
  EXPECT_EQ(rendered("{{ 'a\\\nb' }}"), "ab");
  // Tuples.
  EXPECT_EQ(rendered("{{ (1, 'a') }}{{ (1,) }}{{ [(1, 2)] }}"), "(1, 'a')(1,)[(1, 2)]");
  EXPECT_EQ(rendered("{{ (1, 2) + (3,) }}{{ (1, 2)[0:1] }}{{ (1, 2) | list }}"),
            "(1, 2, 3)(1,)[1, 2]");
  EXPECT_EQ(rendered("{{ (1, 2) == [1, 2] }}{{ (1, 2) | tojson }}"), "False[1, 2]");
  EXPECT_EQ(rendered("{{ {'a': 1} | items | list }}"), "[('a', 1)]");
  EXPECT_EQ(rendered("{% for k, v in {'a': 1} | items %}{{ k }}={{ v }}{% endfor %}"), "a=1");
  // The filter and the method are not the same.
  EXPECT_EQ(rendered(R"({{ "don't a-b(c d)e {f}g [h] <i>j x_y 3a" | title }})"),
            "Don't A-B(C D)e {F}g [H] <I>j X_y 3a");
  EXPECT_EQ(rendered(R"({{ "don't".title() }})"), "Don'T");
}

TEST(ChatTemplate, TakesNullsOfMessagesAsAbsent) {
  const ChatTemplate chat(
      "{{ messages[0] }}{{ 'tool_calls' in messages[0] }}|{{ messages[0].content }}|");
  const auto messages = ordered_json::parse(
      R"([{"role": "user", "content": null, "tool_calls": null, "x": {"y": null}}])");
  EXPECT_EQ(chat.render(messages, kTokens), "{'role': 'user', 'x': {'y': None}}False||");
}

TEST(ChatTemplate, SaysWhatItsAuthorSays) {
  const auto said = message_of([] { rendered("{{ raise_exception('roles must alternate') }}"); });
  EXPECT_EQ(said, "chat_template: roles must alternate");
}

TEST(ChatTemplate, NamesWhatIsNotSupportedAndWhere) {
  const auto said = [](const std::string& text) { return message_of([&] { rendered(text); }); };
  EXPECT_EQ(
      said("a\nb{% filter upper %}{% endfilter %}"),
      "chat_template, line 2: the statement 'filter' is not supported; supported are if, for, "
      "set, macro, break and continue");
  EXPECT_THAT(said("{{ 'é' | upper }}"), HasSubstr("upper of a text with letters beyond ASCII"));
  EXPECT_THAT(said("{{ 'a' | sort }}"), HasSubstr("the filter sort of a string is not supported"));
  EXPECT_THAT(said("{{ 'a'.encode() }}"), HasSubstr("the method encode of a string"));
  EXPECT_THAT(said("{{ lipsum() }}"), HasSubstr("the function lipsum is not supported"));
  EXPECT_THAT(said("{{ 1 is prime }}"), HasSubstr("the test prime is not supported"));
  EXPECT_THAT(said("{% include 'x' %}"), HasSubstr("the statement 'include'"));
  for (const std::string name : {"varargs", "kwargs"}) {
    EXPECT_THAT(said("{% macro f() %}\n{{ " + name + " }}{% endmacro %}{{ f() }}"),
                HasSubstr("line 2: " + name + " of a macro is not supported"));
    EXPECT_EQ(rendered("{{ " + name + " }}"), "");
  }
  EXPECT_THAT(said(R"({{ '\N{BULLET}' }})"), HasSubstr("the escape \\N is not supported"));
}

TEST(ChatTemplate, NamesWhatIsBroken) {
  const auto said = [](const std::string& text) { return message_of([&] { rendered(text); }); };
  EXPECT_THAT(said("{% if true %}"), HasSubstr("'if' has no 'endif'"));
  EXPECT_THAT(said("{% for x in [1] %}{% endif %}"), HasSubstr("'for' has no 'endfor'"));
  EXPECT_THAT(said("{% endfor %}"), HasSubstr("'endfor' has no matching block"));
  EXPECT_THAT(said("\n\n{{ 1 + }}"), HasSubstr("line 3: unexpected end of the tag"));
  EXPECT_THAT(said("{{ 1 "), HasSubstr("{{ has no }}"));
  EXPECT_THAT(said("{{ 'a }}"), HasSubstr("has no"));
  EXPECT_THAT(said(R"({{ '\x7' }})"), HasSubstr("the escape \\x7' is not a character"));
  EXPECT_THAT(said(R"({{ '\ud83d' }})"), HasSubstr("the escape \\ud83d is not a character"));
  EXPECT_THAT(said("{{ (1,) + [2] }}"), HasSubstr("'+' is not supported for a tuple and a list"));
  EXPECT_THAT(said("{{ 1 2 }}"), HasSubstr("unexpected '2'"));
  EXPECT_THAT(said("{{ 'a' + 1 }}"), HasSubstr("'+' is not supported for a string and a number"));
  EXPECT_THAT(said("{{ nothing.more }}"), HasSubstr("of an undefined value"));
  EXPECT_THAT(said("{{ 1 // 0 }}"), HasSubstr("division by zero"));
  EXPECT_THAT(said("{% set a.b = 1 %}"), HasSubstr("on a namespace only"));
}

TEST(ChatTemplate, EndsWhateverATemplateDoes) {
  const auto said = [](const std::string& text) { return message_of([&] { rendered(text); }); };
  EXPECT_THAT(said("{% for i in range(1000000000) %}x{% endfor %}"),
              HasSubstr("range is too long"));
  const std::string loops =
      "{% for i in range(90000) %}{{ '" + std::string(4096, 'x') + "' }}{% endfor %}";
  EXPECT_THAT(said(loops), HasSubstr("the text grows too long"));
  std::string deep;
  for (int i = 0; i < 5000; ++i) deep += "(";
  EXPECT_THAT(said("{{ " + deep + " }}"), HasSubstr("nested too deep"));
  std::string blocks;
  for (int i = 0; i < 5000; ++i) blocks += "{% if true %}";
  EXPECT_THAT(said(blocks), HasSubstr("nested too deep"));
  EXPECT_THAT(said("{{ " + std::string(5000, '-') + "1 }}"), HasSubstr("nested too deep"));
  // Chains are trees as deep as they are long.
  for (const std::string link : {"1 + ", "a and ", "a ~ ", "a if b else "}) {
    std::string chain;
    for (int i = 0; i < 60000; ++i) chain += link;
    EXPECT_THAT(said("{{ " + chain + "1 }}"), HasSubstr("an expression is too long")) << link;
  }
  for (const std::string link : {"|trim", "[0]", ".b", " is defined"}) {
    std::string chain;
    for (int i = 0; i < 60000; ++i) chain += link;
    EXPECT_THAT(said("{{ a" + chain + " }}"), HasSubstr("an expression is too long")) << link;
  }
  EXPECT_THAT(
      said("{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}"),
      HasSubstr("does not come to an end"));
  EXPECT_THAT(said("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
              HasSubstr("macro calls are nested too deeply"));
  const std::string grown = "{% set ns = namespace(x='xy') %}{% for i in range(60) %}";
  EXPECT_THAT(said(grown + "{% set ns.x = ns.x + ns.x %}{% endfor %}"),
              HasSubstr("a text grows too long"));
  EXPECT_THAT(said(grown + "{% set ns.x = ns.x.replace('x', ns.x) %}{% endfor %}"),
              HasSubstr("a text may grow too long"));
  EXPECT_THAT(said(grown + "{% set ns.x = [ns.x, ns.x] | join(ns.x) %}{% endfor %}"),
              HasSubstr("a text grows too long"));
  EXPECT_THAT(said("{% set ns = namespace(x=[1]) %}{% for i in range(60) %}"
                   "{% set ns.x = ns.x + ns.x %}{% endfor %}"),
              HasSubstr("a list grows too long"));
  EXPECT_THAT(said("{% set ns = namespace(x=1) %}{% for i in range(90000) %}"
                   "{% set ns.x = [ns.x] %}{% endfor %}"),
              HasSubstr("a value is nested too deep"));
  EXPECT_THAT(said("{% set ns = namespace(x=1) %}{% set ns.x = ns %}{{ ns }}"),
              HasSubstr("a namespace inside another value"));
}

// Forty lists, each of which contains the previous one twice.
std::string shared_list(const std::string& name) {
  return "{% set " + name + " = namespace(x=[1]) %}{% for i in range(40) %}{% set " + name +
         ".x = [" + name + ".x, " + name + ".x] %}{% endfor %}";
}

TEST(ChatTemplate, CountsWhatValuesShareEachTimeItIsReached) {
  const auto said = [](const std::string& use) {
    return message_of([&] { rendered(shared_list("a") + shared_list("b") + use); });
  };
  for (const std::string use :
       {"{{ a.x == b.x }}", "{{ a.x != b.x }}", "{{ a.x in [b.x] }}", "{{ a.x not in [b.x] }}",
        "{{ {'k': a.x} == {'k': b.x} }}", "{{ a.x is equalto b.x }}", "{{ a.x is ne(b.x) }}",
        "{{ a.x is in [b.x] }}", "{{ [{'k': a.x}] | selectattr('k', 'equalto', b.x) | list }}",
        "{{ [{'k': a.x}] | rejectattr('k', 'in', [b.x]) | list }}"}) {
    EXPECT_THAT(said(use), HasSubstr("does not come to an end")) << use;
  }
  for (const std::string use : {"{{ a.x }}",
                                "{{ a.x | tojson }}",
                                "{{ a.x | tojson(indent=100) }}",
                                "{{ a.x | string }}",
                                "{{ a.x ~ '' }}",
                                "{{ a.x | trim }}",
                                "{{ a.x | indent }}",
                                "{{ a.x | upper }}",
                                "{{ a.x | replace('a', 'b') }}",
                                "{{ [a.x] | join }}",
                                "{{ ','.join([a.x]) }}",
                                "{{ a }}",
                                "{{ {'k': a.x} }}",
                                "{{ {'k': a.x} | tojson }}",
                                "{{ 'a' | trim(a.x) }}",
                                "{{ [{}] | map(attribute=a.x) }}",
                                "{{ [{}] | selectattr(a.x) }}",
                                "{{ [{}] | selectattr('k', a.x) }}",
                                "{{ strftime_now(a.x) }}",
                                "{{ nothing[a.x] }}",
                                "{{ raise_exception(a.x) }}"}) {
    EXPECT_THAT(said(use), HasSubstr("chat_template, line 1: ")) << use;
  }
}

TEST(ChatTemplate, SharesTextsAmongLists) {
  // A million items of one text of a MiB.
  const std::string text =
      "{% set ns = namespace(t='xxxxxxxxxxxxxxxx') %}{% for i in range(16) %}"
      "{% set ns.t = ns.t + ns.t %}{% endfor %}";
  EXPECT_EQ(rendered(text + "{% set ns.l = [ns.t] %}{% for i in range(19) %}"
                            "{% set ns.l = ns.l + ns.l %}{% endfor %}{{ ns.l | length }}"),
            "524288");
}

TEST(ChatTemplate, CountsSearchesByWhatTheyMayCompare) {
  const std::string text =
      "{% set ns = namespace(t='aaaaaaaaaaaaaaaa') %}{% for i in range(16) %}"
      "{% set ns.t = ns.t + ns.t %}{% endfor %}{% set s = ns.t + 'b' %}"
      "{% set t = ns.t + ns.t + ns.t %}";
  const auto said = [&](const std::string& use) {
    return message_of([&] { rendered(text + use); });
  };
  for (const std::string use :
       {"{{ s in t }}", "{{ s is in t }}", "{{ t.find(s) }}", "{{ t.rfind(s) }}",
        "{{ t.count(s) }}", "{{ t.split(s) }}", "{{ t.rsplit(s) }}", "{{ t.replace(s, '') }}",
        "{{ t | replace(s, '') }}", "{{ t.strip(s) }}", "{{ t | trim(s) }}"}) {
    EXPECT_THAT(said(use), HasSubstr("does not come to an end")) << use;
  }
  EXPECT_THAT(said("{{ t.replace('a', 'a\n') | indent(1000) }}"),
              HasSubstr("a text grows too long"));
  EXPECT_THAT(said("{{ t | list }}"), HasSubstr("a list grows too long"));
  EXPECT_THAT(said("{{ t.split('a') | length }}"), HasSubstr("a list grows too long"));
  EXPECT_THAT(said("{% for c in t %}{% endfor %}"), HasSubstr("a list grows too long"));
}

TEST(ChatTemplate, CountsTheBytesOfTextsThatAreCaptured) {
  const std::string text(1 << 20, 'x');
  EXPECT_THAT(
      message_of([&] {
        rendered("{% for i in range(90000) %}{% set x %}" + text + "{% endset %}{% endfor %}");
      }),
      HasSubstr("does not come to an end"));
}

TEST(ChatTemplate, IsPrintableInMessages) {
  const auto said = [](const std::string& text) { return message_of([&] { rendered(text); }); };
  EXPECT_EQ(said("{{ raise_exception('\x1b]0;x\x07') }}"), "chat_template: \\x1b]0;x\\x07");
  EXPECT_EQ(said(R"({{ raise_exception('\x1b]0;x\x07') }})"), "chat_template: \\x1b]0;x\\x07");
  EXPECT_EQ(said(R"({{ nothing['\x1b]0;x'] }})"),
            "chat_template, line 1: cannot read \\x1b]0;x of an undefined value");
  EXPECT_LT(said("{{ raise_exception('" + std::string(1 << 20, 'x') + "') }}").size(), 3000U);
}

TEST(ChatTemplate, IsFoundInAFolder) {
  TemporaryFolder folder;
  EXPECT_FALSE(load_chat_template(folder.path()));
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder.file(name)) << text;
  };
  write("tokenizer_config.json", R"({"bos_token": {"content": "<b>"}, "eos_token": "<e>",
    "chat_template": [{"name": "tool_use", "template": "no"},
                      {"name": "default", "template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}"}]})");
  const auto messages = ordered_json::parse(R"([{"role": "user", "content": "hi"}])");
  auto loaded = load_chat_template(folder.path());
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->chat_template.render(messages, loaded->options), "<b>hi<e>");
  write("chat_template.jinja", "file");  // newer folders
  loaded = load_chat_template(folder.path());
  EXPECT_EQ(loaded->chat_template.render(messages, loaded->options), "file");
  write("chat_template.jinja", "{{ pad_token }}{{ cls_token }}|{{ mask_token }}|{{ unk_token }}");
  write("special_tokens_map.json", R"({"pad_token": "<p>", "cls_token": {"content": "<c>"}})");
  loaded = load_chat_template(folder.path());
  EXPECT_EQ(loaded->chat_template.render(messages, loaded->options), "<p><c>||");
  // Where the configuration has its tokens by number, that file is an older one's.
  write("tokenizer_config.json", R"({"unk_token": "<u>", "added_tokens_decoder": {}})");
  loaded = load_chat_template(folder.path());
  EXPECT_EQ(loaded->chat_template.render(messages, loaded->options), "||<u>");
  write("chat_template.jinja", "caf\xe9 {{ 1 }}");
  EXPECT_EQ(message_of([&] { load_chat_template(folder.path()); }),
            folder.path() +
                "/chat_template.jinja: byte 3 is 0xe9, which is not UTF-8; write the "
                "template in it");
  write("chat_template.jinja", "{% block %}");
  EXPECT_THAT(message_of([&] { load_chat_template(folder.path()); }),
              HasSubstr(folder.path() + ": chat_template, line 1"));
}

}  // namespace
}  // namespace fullshard::testing
