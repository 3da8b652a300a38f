// SPDX-License-Identifier: Apache-2.0
// The sections that are text: configuration, origin, logs.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "fullshard/base/json_text.h"
#include "fullshard/report/charts/html_text.h"
#include "fullshard/report/records/number_text.h"
#include "fullshard/report/report_sections.h"

namespace fullshard::report {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostRows = 600;
constexpr size_t kLongValue = 200;
constexpr size_t kLongEffect = 300;
constexpr size_t kLongLine = 400;
constexpr size_t kLongFact = 2000;
constexpr size_t kMostHosts = 32;

std::string text_in(const Json& row, const char* key) {
  const auto found = row.find(key);
  if (found == row.end() || found->is_null()) return {};
  return found->is_string() ? found->get<std::string>()
                            : found->dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string setting_row(const std::string& key, const Json& row) {
  return fmt::format(
      "<tr><td><code>{}</code></td><td><code>{}</code></td><td>{}</td><td class=\"effect\">{}</td>"
      "</tr>\n",
      escape_html(shortened(key, kLongValue)),
      escape_html(shortened(text_in(row, "value"), kLongValue)),
      escape_html(shortened(text_in(row, "origin"), kLongValue)),
      escape_html(shortened(text_in(row, "effect"), kLongEffect)));
}

std::string settings_table(const std::string& rows) {
  return fmt::format(
      "<div class=\"wide\"><table "
      "class=\"settings\"><thead><tr><th>key</th><th>value</th><th>from</th><th>effect</th>"
      "</tr></thead><tbody>\n{}</tbody></table></div>\n",
      rows);
}

std::string fact(std::string_view name, const std::string& value) {
  return fmt::format("<tr><td>{}</td><td><code>{}</code></td></tr>\n",
                     escape_html(shortened(name, 100)), escape_html(shortened(value, kLongFact)));
}

// Quoted as a shell takes it.
std::string quoted(const std::string& word) {
  const bool is_plain = !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("-_./=:,+@%").find(c) != std::string_view::npos;
  });
  if (is_plain) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

std::string hosts_text(const std::vector<std::string>& hosts) {
  std::string text;
  for (size_t i = 0; i < std::min(hosts.size(), kMostHosts); ++i) {
    text += (i > 0 ? ", " : "") + hosts[i];
  }
  if (hosts.size() > kMostHosts) text += fmt::format(" and {} more", hosts.size() - kMostHosts);
  return text;
}

}  // namespace

std::string configuration_section(const RunFolder& run) {
  if (!run.record) return {};
  const Json configuration = base::parse_json<Json>(run.record->configuration);
  if (!configuration.is_object() || configuration.empty()) return {};
  std::string chosen, defaults;
  size_t num_defaults = 0, num_rows = 0;
  for (const auto& [key, row] : configuration.items()) {
    if (++num_rows > kMostRows || !row.is_object()) continue;
    const bool is_default = text_in(row, "origin") == "default";
    (is_default ? defaults : chosen) += setting_row(key, row);
    num_defaults += is_default ? 1 : 0;
  }
  std::string text = "<h2>Configuration</h2>\n<div class=\"box\">\n";
  text += chosen.empty() ? "<p class=\"note\">Defaults only.</p>\n" : settings_table(chosen);
  if (num_defaults > 0) {
    text += fmt::format("<details id=\"defaults\"><summary>{} defaults</summary>\n{}</details>\n",
                        num_defaults, settings_table(defaults));
  }
  return text + "</div>\n";
}

std::string origin_section(const RunFolder& run) {
  if (!run.record) return {};
  const RunRecord& record = *run.record;
  std::string command;
  for (const std::string& word : record.command) {
    if (command.size() > kLongFact) break;
    command += (command.empty() ? "" : " ") + quoted(word);
  }
  std::string rows = fact("folder", run.path);
  if (!command.empty()) rows += fact("command", command);
  if (record.started > 0) rows += fact("started", format_utc(record.started));
  if (record.ended) rows += fact("ended", format_utc(*record.ended));
  if (!record.mesh.hosts.empty()) rows += fact("hosts", hosts_text(record.mesh.hosts));
  for (size_t i = 0; i < std::min<size_t>(record.versions.size(), 50); ++i) {
    rows += fact(record.versions[i].first, record.versions[i].second);
  }
  return fmt::format(
      "<h2>Where it came from</h2>\n<div class=\"box\"><div class=\"wide\"><table><tbody>\n{}"
      "</tbody></table></div></div>\n",
      rows);
}

std::string logs_section(const RunFolder& run) {
  if (run.logs.empty()) return {};
  std::string text = "<h2>Last lines of the logs</h2>\n<div class=\"box\">\n";
  const bool is_open = run.record && run.record->status == RunStatus::failed;
  for (const RankLog& log : run.logs) {
    std::string lines = log.has_more ? "\xE2\x80\xA6\n" : "";
    for (const std::string& line : log.lines) lines += shortened(line, kLongLine) + "\n";
    text += fmt::format(
        "<details id=\"rank-{}\"{}><summary>rank {}</summary><pre>{}</pre></details>\n", log.rank,
        is_open && &log == &run.logs[0] ? " open" : "", log.rank, escape_html(lines));
  }
  if (run.num_logs > static_cast<int>(run.logs.size())) {
    text += fmt::format("<p class=\"note\">and {} more in logs/</p>\n",
                        run.num_logs - static_cast<int>(run.logs.size()));
  }
  return text + "</div>\n";
}

}  // namespace fullshard::report
