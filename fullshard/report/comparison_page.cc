// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/comparison_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/base/json_text.h"
#include "fullshard/base/utf8_character.h"
#include "fullshard/report/charts/html_text.h"
#include "fullshard/report/charts/line_chart.h"
#include "fullshard/report/page_assets.h"
#include "fullshard/report/records/number_text.h"
#include "fullshard/report/records/run_file.h"
#include "fullshard/report/records/run_totals.h"
#include "fullshard/report/report_sections.h"
#include "fullshard/report/run_summary.h"

namespace fullshard::report {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr size_t kMostDifferences = 300;
constexpr size_t kLongestValue = 200;
constexpr size_t kKeptFront = 20;  // kept of the front that long values share

struct ComparedRun {
  const RunFolder& folder;
  RunTotals totals;
  std::string name;    // differs from the names of the others
  std::string colour;  // a class of the page's style
};

std::vector<ComparedRun> compared(const std::vector<RunFolder>& folders) {
  std::map<std::string, int> times;
  for (const RunFolder& folder : folders) ++times[title_of(folder)];
  std::vector<ComparedRun> runs;
  for (const RunFolder& folder : folders) {
    const std::string title = title_of(folder);
    runs.push_back({folder, folder.metrics.totals(),
                    times[title] > 1 ? shortened(folder.path, kLongestValue) : title,
                    fmt::format("c{}", runs.size() + 1)});
  }
  return runs;
}

std::string name_cell(const ComparedRun& run) {
  return fmt::format("<i class=\"{}\"></i>{}", run.colour, escape_html(run.name));
}

// A row of numbers, one for each run; "-" for a run without one, and no row if no run has one.
template <class Value>
std::string numbers_row(std::string_view name, const std::vector<ComparedRun>& runs,
                        const Value& value) {
  std::string cells;
  bool has_any = false;
  for (const ComparedRun& run : runs) {
    const std::string text = run.totals.last() ? value(run) : "";
    has_any = has_any || !text.empty();
    cells += fmt::format("<td class=\"number\">{}</td>", text.empty() ? "-" : escape_html(text));
  }
  return has_any ? fmt::format("<tr><td>{}</td>{}</tr>\n", name, cells) : "";
}

std::string best_text(const std::optional<BestLoss>& best) {
  return best ? fmt::format("{} at step {}", format_loss(best->loss), best->step) : "";
}

std::string status_text(const ComparedRun& run) {
  return run.folder.record ? std::string(name_of(run.folder.record->status)) : "unknown";
}

std::string numbers_table(const std::vector<ComparedRun>& runs) {
  std::string heads, states;
  for (const ComparedRun& run : runs) {
    heads += fmt::format("<th class=\"number\">{}</th>", name_cell(run));
    states += fmt::format("<td class=\"number\">{}</td>", status_text(run));
  }
  std::string rows = fmt::format("<tr><td>status</td>{}</tr>\n", states);
  rows += numbers_row("steps", runs, [](const ComparedRun& run) {
    return fmt::format("{}", run.totals.last()->step);
  });
  rows += numbers_row("counted since step", runs, [](const ComparedRun& run) {
    const int64_t since = run.totals.first_step();
    return since > 0 ? fmt::format("{}", since) : "";
  });
  rows += numbers_row("last loss", runs,
                      [](const ComparedRun& run) { return format_loss(run.totals.last()->loss); });
  rows += numbers_row("best loss", runs,
                      [](const ComparedRun& run) { return best_text(run.totals.best()); });
  rows += numbers_row("last evaluation", runs, [](const ComparedRun& run) {
    return best_text(run.totals.last_evaluation());
  });
  rows += numbers_row("best evaluation", runs, [](const ComparedRun& run) {
    return best_text(run.totals.best_evaluation());
  });
  rows += numbers_row("tokens/s, median", runs, [](const ComparedRun& run) {
    return format_rate(run.totals.median_tokens_per_s());
  });
  rows += numbers_row("MFU, median", runs, [](const ComparedRun& run) {
    const auto mfu = run.totals.median_mfu();
    return mfu ? format_percent(*mfu) : "";
  });
  rows += numbers_row("peak device memory", runs, [](const ComparedRun& run) {
    return run.totals.device_peak_bytes() > 0 ? format_bytes(run.totals.device_peak_bytes()) : "";
  });
  rows += numbers_row("peak host memory", runs, [](const ComparedRun& run) {
    return format_bytes(run.totals.host_peak_bytes());
  });
  rows += numbers_row("tokens", runs,
                      [](const ComparedRun& run) { return format_count(run.totals.tokens()); });
  rows += numbers_row("time inside steps", runs,
                      [](const ComparedRun& run) { return format_clock(run.totals.seconds()); });
  return fmt::format(
      "<div class=\"box\"><div class=\"wide\"><table class=\"runs\"><thead><tr><th></th>{}</tr>"
      "</thead><tbody>\n{}</tbody></table></div></div>\n",
      heads, rows);
}

std::string overlaid_chart(std::string_view title, const std::vector<ComparedRun>& runs,
                           double (*value)(const StepRecord&), bool is_from_zero = false) {
  LineChart chart{.title = std::string(title), .is_from_zero = is_from_zero};
  for (const ComparedRun& run : runs) {
    ChartSeries series{.name = run.name, .colour = run.colour};
    for (const StepRecord& step : run.folder.metrics.steps) {
      series.points.push_back({static_cast<double>(step.step), value(step)});
    }
    chart.series.push_back(std::move(series));
  }
  return line_chart_html(chart);
}

std::string evaluation_chart(const std::vector<ComparedRun>& runs) {
  LineChart chart{.title = "Evaluation loss over steps"};
  for (const ComparedRun& run : runs) {
    ChartSeries series{.name = run.name, .colour = run.colour};
    for (const StepRecord& step : run.folder.metrics.steps) {
      if (step.eval_loss) {
        series.points.push_back({static_cast<double>(step.step), *step.eval_loss});
      }
    }
    if (!series.points.empty()) chart.series.push_back(std::move(series));
  }
  return chart.series.empty() ? "" : line_chart_html(chart);
}

std::string overlaid_charts(const std::vector<ComparedRun>& runs) {
  return "<div class=\"charts\">\n" +
         overlaid_chart("Loss over steps", runs, [](const StepRecord& step) { return step.loss; }) +
         evaluation_chart(runs) +
         overlaid_chart(
             "Learning rate over steps", runs, [](const StepRecord& step) { return step.lr; },
             true) +
         overlaid_chart(
             "Gradient norm over steps", runs,
             [](const StepRecord& step) { return step.grad_norm.value_or(std::nan("")); }) +
         overlaid_chart(
             "Tokens/s over steps", runs, [](const StepRecord& step) { return step.tokens_per_s; },
             true) +
         overlaid_chart(
             "Seconds of a step", runs, [](const StepRecord& step) { return step.step_s; }, true) +
         "</div>\n";
}

struct Fact {
  std::string value{};
  bool is_default = false;
};

// The settings of a run, by key: its configuration, and the other settings in run.json.
using Facts = std::map<std::string, Fact>;

std::string value_text(const OrderedJson& value) {
  return value.is_string() ? value.get<std::string>()
                           : value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

void add_configuration(const std::string& text, Facts& facts) {
  const OrderedJson configuration = base::parse_json<OrderedJson>(text);
  if (!configuration.is_object()) return;
  for (const auto& [key, row] : configuration.items()) {
    if (!row.is_object() || !row.contains("value")) continue;
    facts[key] = {value_text(row["value"]), row.contains("origin") && row["origin"] == "default"};
  }
}

// "-1" and "-.5" are values.
bool is_flag(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && word[1] != '.' &&
         std::isdigit(static_cast<unsigned char>(word[1])) == 0;
}

// Adds each flag with its values separately, and the words before the first flag as "command".
void add_command(const std::vector<std::string>& command, Facts& facts) {
  const std::string own = "command", given = "given";
  std::string key = own;
  const auto add = [&](const std::string& value) {
    std::string& text = facts[key].value;
    text = text.empty() || text == given ? value : text + " " + value;
  };
  for (const std::string& word : command) {
    if (!is_flag(word)) {
      add(word);
      continue;
    }
    const size_t equals = std::min(word.find('='), word.size());
    key = own + " " + word.substr(0, equals);
    facts.try_emplace(key, Fact{.value = given});
    if (equals < word.size()) add(word.substr(equals + 1));
  }
}

Facts facts_of(const RunFolder& run) {
  Facts facts;
  if (!run.record) return facts;
  const RunRecord& record = *run.record;
  add_configuration(record.configuration, facts);
  const auto add = [&](const std::string& key, std::string value) {
    facts[key] = {.value = std::move(value)};
  };
  add("model", record.model.name);
  add("parameters", fmt::format("{}", record.model.parameters));
  add("device", record.device);
  add("ranks", fmt::format("{}", record.mesh.world));
  add("shards", fmt::format("{}", record.mesh.shards));
  add("replicas", fmt::format("{}", record.mesh.replicas));
  add("planned steps", fmt::format("{}", record.num_steps));
  for (const auto& [name, version] : record.versions) add("version of " + name, version);
  add_command(record.command, facts);
  return facts;
}

// Whether two runs have different values, or one sets a key that another's kind of file lacks. A
// default and a missing key are no difference.
bool is_difference(const std::string& key, const std::vector<Facts>& facts) {
  std::set<std::string> values;
  bool is_chosen = false, is_missing = false;
  for (const Facts& own : facts) {
    const auto found = own.find(key);
    is_missing = is_missing || found == own.end();
    if (found == own.end()) continue;
    values.insert(found->second.value);
    is_chosen = is_chosen || !found->second.is_default;
  }
  return values.size() > 1 || (is_missing && is_chosen);
}

// How many bytes at the front are shared by long values and need not be shown.
size_t shared_front(const std::string& key, const std::vector<Facts>& facts) {
  std::vector<std::string_view> values;
  for (const Facts& own : facts) {
    if (const auto found = own.find(key); found != own.end()) values.push_back(found->second.value);
  }
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const auto end = std::mismatch(least->begin(), least->end(), most->begin(), most->end());
  auto front = static_cast<size_t>(end.first - least->begin());
  front -= std::min(front, kKeptFront);
  while (front > 0 && base::continues_utf8_character((*least)[front])) --front;
  const bool fits = std::all_of(values.begin(), values.end(), [](std::string_view value) {
    return value.size() <= kLongestValue;
  });
  return fits ? 0 : front;
}

std::string difference_row(const std::string& key, const std::vector<Facts>& facts) {
  const size_t front = shared_front(key, facts);
  std::string cells;
  for (const Facts& own : facts) {
    const auto found = own.find(key);
    if (found == own.end()) {
      cells += "<td class=\"effect\">not set</td>";
      continue;
    }
    const std::string value = shortened(found->second.value.substr(front), kLongestValue);
    cells += fmt::format("<td><code>{}{}</code></td>", front > 0 ? "\xE2\x80\xA6" : "",
                         escape_html(value));
  }
  return fmt::format("<tr><td><code>{}</code></td>{}</tr>\n",
                     escape_html(shortened(key, kLongestValue)), cells);
}

std::string differences_section(const std::vector<ComparedRun>& runs) {
  std::vector<Facts> facts;
  std::set<std::string> keys;
  std::string heads, rows;
  for (const ComparedRun& run : runs) {
    facts.push_back(facts_of(run.folder));
    for (const auto& [key, fact] : facts.back()) keys.insert(key);
    heads += fmt::format("<th>{}</th>", name_cell(run));
  }
  size_t num_rows = 0;
  for (const std::string& key : keys) {
    if (!is_difference(key, facts)) continue;
    if (++num_rows <= kMostDifferences) rows += difference_row(key, facts);
  }
  std::string text = "<h2>Settings that differ</h2>\n<div class=\"box\">";
  if (rows.empty()) {
    text += "<p class=\"note\">None.</p>";
  } else {
    text += fmt::format(
        "<div class=\"wide\"><table class=\"differs\"><thead><tr><th>key</th>{}</tr></thead>"
        "<tbody>\n{}</tbody></table></div>",
        heads, rows);
  }
  if (num_rows > kMostDifferences) {
    text += fmt::format("<p class=\"note\">and {} more</p>", num_rows - kMostDifferences);
  }
  return text + fmt::format("<p class=\"note\">{} settings are the same.</p></div>\n",
                            keys.size() - num_rows);
}

double comparison_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

bool any_is_live(const std::vector<RunFolder>& runs, double now) {
  return std::any_of(runs.begin(), runs.end(),
                     [&](const RunFolder& run) { return run.is_live(now); });
}

}  // namespace

std::string html_comparison(const std::vector<RunFolder>& folders, double now) {
  check(folders.size() >= 2 && folders.size() <= kMostComparedRuns,
        "report: {} runs to compare, expected 2 to {}", folders.size(), kMostComparedRuns);
  const std::vector<ComparedRun> runs = compared(folders);
  std::string title;
  for (const ComparedRun& run : runs) title += (title.empty() ? "" : ", ") + run.name;
  return whole_page(title,
                    fmt::format("<header><h1>{} runs compared</h1></header>\n", runs.size()) +
                        "<h2>Numbers</h2>\n" + numbers_table(runs) + overlaid_charts(runs) +
                        differences_section(runs),
                    any_is_live(folders, now));
}

WrittenComparison write_html_comparison(const std::vector<std::string>& folders,
                                        const std::string& output) {
  WrittenComparison written{.path = output};
  for (const std::string& folder : folders) written.runs.push_back(read_run_folder(folder));
  const double now = comparison_time();
  written.is_live = any_is_live(written.runs, now);
  write_whole_file(written.path, html_comparison(written.runs, now));
  return written;
}

std::string comparison_json(const WrittenComparison& written) {
  OrderedJson runs = OrderedJson::array();
  for (const RunFolder& run : written.runs) {
    runs.push_back(OrderedJson::parse(run_summary_json(run, written.path, written.is_live)));
  }
  const OrderedJson all = {{"page", written.path}, {"live", written.is_live}, {"runs", runs}};
  return all.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace fullshard::report
