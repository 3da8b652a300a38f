// SPDX-License-Identifier: Apache-2.0
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>

#include "fullshard/base/error.h"
#include "fullshard/text/pipeline/pattern.h"
#include "fullshard/text/unicode/utf8.h"

namespace fullshard::text {
namespace {

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

// \w and \s as in Oniguruma: PCRE2's own leave out marks and, depending on its version, add U+180E.
std::string with_classes_written_out(const std::string& expression) {
  constexpr std::string_view kWords =
      "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}\\x{24B6}-\\x{24E9}"
      "\\x{1F130}-\\x{1F149}\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}";
  constexpr std::string_view kSpaces = "\\t-\\r\\x{85}\\p{Z}";
  std::string result;
  bool in_class = false;
  for (size_t i = 0; i < expression.size(); ++i) {
    const char letter = expression[i];
    if (letter != '\\' || i + 1 == expression.size()) {
      in_class = letter == '[' || (in_class && letter != ']');
      result += letter;
      continue;
    }
    const char escaped = expression[++i];
    const bool is_word = escaped == 'w' || escaped == 'W',
               is_space = escaped == 's' || escaped == 'S';
    const bool is_negative = escaped == 'W' || escaped == 'S';
    if ((!is_word && !is_space) || (in_class && is_negative)) {
      result += {letter, escaped};
      continue;
    }
    const std::string_view members = is_word ? kWords : kSpaces;
    result +=
        in_class ? std::string(members) : fmt::format("[{}{}]", is_negative ? "^" : "", members);
  }
  return result;
}

class PcrePattern : public Pattern {
 public:
  PcrePattern(std::string expression, pcre2_code* code)
      : expression_(std::move(expression)), code_(code) {}

  void find(std::string_view text, std::vector<Match>& found) const override {
    const std::unique_ptr<pcre2_match_data, FreeData> data(
        pcre2_match_data_create_from_pattern(code_.get(), nullptr));
    uint32_t done = 0;
    for (size_t from = 0; from < text.size() && match(text, from, data.get());) {
      const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data.get());
      if (range[1] > range[0]) {
        append_match(found, done, static_cast<uint32_t>(range[0]), static_cast<uint32_t>(range[1]));
        from = range[1];
      } else {  // an empty match splits nothing
        from = range[1] < text.size() ? range[1] + utf8_length(text[range[1]]) : text.size();
      }
    }
    if (done < text.size()) found.push_back({done, static_cast<uint32_t>(text.size()), false});
  }

 private:
  bool match(std::string_view text, size_t from, pcre2_match_data* data) const {
    const int result = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                   text.size(), from, PCRE2_NO_UTF_CHECK, data, nullptr);
    if (result == PCRE2_ERROR_NOMATCH) return false;
    if (result < 0) {
      fail_as(ErrorKind::input, "regular expression \"{}\": {}", expression_, message_of(result));
    }
    return true;
  }

  std::string expression_;
  std::unique_ptr<pcre2_code, FreeCode> code_;
};

}  // namespace

std::unique_ptr<Pattern> pcre_pattern(const std::string& expression) {
  // Oniguruma, for which the files are written, reads these differently from PCRE2, or not at all.
  for (const std::string_view different :
       {"&&", "\\h", "\\H", "\\X", "(?~", "\\R", "\\O", "\\C", "\\K"}) {
    if (expression.find(different) != std::string::npos) {
      fail_as(ErrorKind::input, "regular expression \"{}\": \"{}\" is not supported", expression,
              different);
    }
  }
  const std::string written = with_classes_written_out(expression);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(written.data()), written.size(),
                                   PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
  if (code == nullptr) {
    fail_as(ErrorKind::input, "regular expression \"{}\": {} at character {}", expression,
            message_of(error), offset);
  }
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // slower without it, but the same result
  return std::make_unique<PcrePattern>(expression, code);
}

}  // namespace fullshard::text
