// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/html_report.h"

#include <chrono>

#include "fullshard/base/error.h"
#include "fullshard/report/page_assets.h"
#include "fullshard/report/records/run_file.h"
#include "fullshard/report/report_sections.h"

namespace fullshard::report {
namespace {

double page_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

std::string html_report(const RunFolder& run, double now) {
  const RunTotals totals = run.metrics.totals();
  return whole_page(title_of(run),
                    header_section(run, totals, now) + numbers_section(run, totals) +
                        warnings_section(run) + pictures_section(run, totals) +
                        configuration_section(run) + origin_section(run) + logs_section(run),
                    run.is_live(now));
}

WrittenReport write_html_report(const std::string& folder, const std::string& output) {
  RunFolder run = read_run_folder(folder);
  const double now = page_time();
  WrittenReport written{.path = output.empty() ? folder + "/report.html" : output,
                        .is_live = run.is_live(now)};
  write_whole_file(written.path, html_report(run, now));
  written.run = std::move(run);
  return written;
}

std::optional<std::string> try_html_report(const std::string& folder) {
  try {
    write_html_report(folder);
    return std::nullopt;
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace fullshard::report
