// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tuning/tune_page.h"

#include <fmt/format.h>

#include <algorithm>

#include "fullshard/base/bytes.h"
#include "fullshard/report/charts/html_text.h"
#include "fullshard/report/page_assets.h"
#include "fullshard/report/records/number_text.h"
#include "fullshard/tuning/tune_text.h"

namespace fullshard::tuning {
namespace {

std::string number_cell(const std::string& text) {
  return fmt::format("<td class=\"number\">{}</td>", text);
}

std::string bytes_cell(const std::optional<int64_t>& bytes) {
  return number_cell(bytes ? format_bytes(*bytes) : "");
}

std::string fit_word(const RungResult& result) {
  if (result.runs()) return "yes";
  if (!result.rung.passed_over.empty()) return "";
  return result.fits ? "by plan" : result.config.empty() ? "" : "no";
}

std::string table_row(const RungResult& result, bool is_winner) {
  const std::string title = report::escape_html(result.rung.title());
  return fmt::format(
      "<tr><td>{}</td><td>{}</td>{}{}{}<td style=\"padding-left:2em\">{}</td></tr>\n",
      is_winner ? fmt::format("<strong>{}</strong>", title) : title, fit_word(result),
      bytes_cell(result.planned_bytes), bytes_cell(result.peak_bytes),
      number_cell(result.tokens_per_s ? report::format_rate(*result.tokens_per_s) : ""),
      report::escape_html(is_winner ? "chosen" : result.why));
}

std::string table_section(const Climbed& climbed) {
  std::string rows;
  for (size_t index = 0; index < climbed.results.size(); ++index) {
    rows += table_row(climbed.results[index], climbed.winner == index);
  }
  return fmt::format(
      "<h2>Rungs</h2>\n<div class=\"box\"><div class=\"wide\"><table><thead><tr><th>rung</th>"
      "<th>fits</th><th class=\"number\">planned</th><th class=\"number\">measured</th>"
      "<th class=\"number\">tokens/s</th><th "
      "style=\"padding-left:2em\">why</th></tr></thead><tbody>\n{}"
      "</tbody></table></div></div>\n",
      rows);
}

// One bar per rung that ran, the longest is the fastest.
std::string bars_section(const Climbed& climbed) {
  if (!climbed.winner) return "";
  const double most = *climbed.results[*climbed.winner].tokens_per_s;
  std::string bars;
  for (size_t index = 0; index < climbed.results.size(); ++index) {
    const RungResult& result = climbed.results[index];
    if (!result.runs()) continue;
    const double width = most > 0 ? 100 * *result.tokens_per_s / most : 0;
    bars += fmt::format(
        "<tr><td>{}</td><td><svg width=\"320\" height=\"12\" viewBox=\"0 0 100 12\" "
        "preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{} tokens/s\">"
        "<rect width=\"{:.1f}\" height=\"12\" style=\"fill:var(--{})\"/></svg></td>{}</tr>\n",
        report::escape_html(result.rung.title()), report::format_rate(*result.tokens_per_s), width,
        climbed.winner == index ? "c1" : "rest",
        number_cell(report::format_rate(*result.tokens_per_s)));
  }
  return fmt::format(
      "<h2>Tokens per second</h2>\n<div class=\"box\"><div class=\"wide\"><table><tbody>\n{}"
      "</tbody></table></div></div>\n",
      bars);
}

}  // namespace

std::string tune_page(const Climbed& climbed, const std::string& title) {
  const std::string name = report::escape_html(title);
  return fmt::format(
             "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
             "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n"
             "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
             "<meta name=\"color-scheme\" content=\"light dark\">\n"
             "<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n"
             "<header><h1>{}</h1><p class=\"about\">{}</p></header>\n",
             report::page_policy(), name, report::page_style(), name,
             report::escape_html(climbed.winner ? choice_text(climbed) : "nothing chosen yet")) +
         bars_section(climbed) + table_section(climbed) + "</main>\n</body>\n</html>\n";
}

}  // namespace fullshard::tuning
