// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/html_report.h"

#include <fmt/format.h>

#include <chrono>

#include "fullshard/report/html_text.h"
#include "fullshard/report/page_assets.h"
#include "fullshard/report/report_sections.h"
#include "fullshard/report/run_file.h"

namespace fullshard::report {
namespace {

constexpr int kSecondsBetweenReloads = 10;

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

std::string html_report(const RunFolder& run, double now) {
  const RunTotals totals = run.metrics.totals();
  const std::string reload =
      run.is_live(now)
          ? fmt::format("<meta http-equiv=\"refresh\" content=\"{}\">\n", kSecondsBetweenReloads)
          : "";
  return fmt::format(
             "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
             "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n"
             "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
             "<meta name=\"color-scheme\" content=\"light dark\">\n{}"
             "<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n",
             page_policy(), reload, escape_html(title_of(run)), page_style()) +
         header_section(run, totals, now) + numbers_section(run, totals) + warnings_section(run) +
         pictures_section(run, totals) + configuration_section(run) + origin_section(run) +
         logs_section(run) +
         fmt::format("</main>\n<script>{}</script>\n</body>\n</html>\n", page_script());
}

WrittenReport write_html_report(const std::string& folder, const std::string& output) {
  RunFolder run = read_run_folder(folder);
  const double now = seconds_since_1970();
  WrittenReport written{.path = output.empty() ? folder + "/report.html" : output,
                        .is_live = run.is_live(now)};
  write_whole_file(written.path, html_report(run, now));
  written.run = std::move(run);
  return written;
}

}  // namespace fullshard::report
