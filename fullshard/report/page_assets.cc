// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/page_assets.h"

#include <fmt/format.h>

#include "fullshard/base/base64.h"
#include "fullshard/base/sha256.h"
#include "fullshard/report/charts/html_text.h"

namespace fullshard::report {
namespace {

// Readers who see few colours can tell c1 to c6 apart, on both backgrounds.
constexpr std::string_view kStyle = R"css(
:root { color-scheme: light dark;
  --page: #f9f9f7; --card: #fff; --ink: #16161a; --soft: #55554f; --faint: #75756e; --rule: #e4e3dd;
  --c1: #2a78d6; --c2: #1baf7a; --c3: #eda100; --c4: #008300; --c5: #4a3aa7; --c6: #e34948; --rest: #b9b8b1;
  --good: #006300; --bad: #c2282a; --warm: #fdf3d8; --hot: #fdeaea; }
@media (prefers-color-scheme: dark) { :root {
  --page: #111110; --card: #1b1b19; --ink: #f4f4f2; --soft: #c0bfb7; --faint: #918f86; --rule: #33332f;
  --c1: #3987e5; --c2: #199e70; --c3: #c98500; --c4: #2f9a2f; --c5: #9085e9; --c6: #e66767; --rest: #6b6a63;
  --good: #4bc24b; --bad: #ff8a85; --warm: #342a10; --hot: #3a1a1a; } }
@media print { :root { color-scheme: light;
  --page: #fff; --card: #fff; --ink: #000; --soft: #333; --faint: #555; --rule: #ccc;
  --c1: #2a78d6; --c2: #1baf7a; --c3: #eda100; --c4: #008300; --c5: #4a3aa7; --c6: #e34948; --rest: #b9b8b1;
  --good: #006300; --bad: #c2282a; --warm: #fff; --hot: #fff; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } main { max-width: none !important; }
  figure, .tile, .box { break-inside: avoid; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main { max-width: 1160px; margin: 0 auto; padding: 24px 20px 64px; }
h1 { font-size: 24px; line-height: 1.25; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 36px 0 10px; }
header .top { display: flex; flex-wrap: wrap; align-items: center; gap: 6px 12px; }
.status { border: 1.5px solid currentColor; border-radius: 999px; padding: 0 10px; font-size: 13px; font-weight: 600; }
.status.done { color: var(--good); } .status.failed, .status.interrupted { color: var(--bad); }
.status.running { color: var(--c1); } .status.unknown { color: var(--faint); }
.about { color: var(--soft); margin: 6px 0 0; overflow-wrap: anywhere; }
progress { width: 100%; height: 6px; margin-top: 12px; border: 0; border-radius: 3px; background: var(--rule);
  overflow: hidden; appearance: none; -webkit-appearance: none; }
progress::-webkit-progress-bar { background: var(--rule); } progress::-webkit-progress-value { background: var(--c1); }
progress::-moz-progress-bar { background: var(--c1); }
.tiles { display: grid; grid-template-columns: repeat(4, 1fr); gap: 10px; margin: 20px 0 0; }
.tile, .chart, .box { background: var(--card); border: 1px solid var(--rule); border-radius: 8px; }
.tile { padding: 10px 14px; } .tile dt { color: var(--soft); font-size: 13px; }
.tile dd { margin: 0; font-size: 21px; font-weight: 600; line-height: 1.35; }
.tile dd small { display: block; font-size: 12.5px; font-weight: 400; color: var(--faint); line-height: 1.35; }
.charts { display: grid; grid-template-columns: 1fr; gap: 14px; margin-top: 14px; }
@media (min-width: 900px) { .charts { grid-template-columns: 1fr 1fr; } }
.chart { margin: 0; padding: 12px 16px 12px; min-width: 0; }
figcaption { display: flex; flex-wrap: wrap; gap: 2px 16px; align-items: baseline; justify-content: space-between;
  margin-bottom: 14px; font-size: 14px; }
.legend { display: flex; flex-wrap: wrap; gap: 0 14px; list-style: none; margin: 0; padding: 0; font-size: 13px; color: var(--soft); }
.legend i, td i, th i { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 6px; background: var(--c); }
.legend i.dots { border-radius: 50%; } .legend i.faint { opacity: .45; }
.c1 { --c: var(--c1); } .c2 { --c: var(--c2); } .c3 { --c: var(--c3); } .c4 { --c: var(--c4); }
.c5 { --c: var(--c5); } .c6 { --c: var(--c6); } .rest { --c: var(--rest); }
.plot { position: relative; height: 210px; margin: 0 10px 26px 56px; }
.plot svg { position: absolute; inset: 0; width: 100%; height: 100%; overflow: visible; }
.plot path { fill: none; vector-effect: non-scaling-stroke; stroke: var(--c); stroke-linejoin: round; stroke-linecap: round; }
.plot path.line { stroke-width: 1.8; } .plot path.faint { stroke-width: 1; opacity: .45; } .plot path.dots { stroke-width: 7; }
.plot path.grid { stroke: var(--rule); stroke-width: 1; stroke-linecap: butt; } .plot rect { fill: var(--c); }
.plot span { position: absolute; font-size: 12px; line-height: 14px; color: var(--faint); white-space: nowrap;
  font-variant-numeric: tabular-nums; pointer-events: none; }
.plot .up { right: 100%; margin-right: 8px; transform: translateY(-50%); }
.plot .across { top: 100%; margin-top: 8px; transform: translateX(-50%); }
.plot .rule { top: 0; bottom: 0; width: 1px; background: var(--faint); }
.plot .chosen { top: 0; bottom: 0; background: var(--c1); opacity: .18; }
.plot { cursor: crosshair; touch-action: pan-y; user-select: none; -webkit-user-select: none; } .plot.zoomed svg { overflow: hidden; }
.controls { display: flex; flex-wrap: wrap; gap: 6px 20px; align-items: center; margin-top: 22px; font-size: 13px; color: var(--soft); }
.controls label { display: flex; gap: 6px; align-items: center; } .controls input { width: 110px; accent-color: var(--c1); }
.controls select, .controls button { font: inherit; color: var(--ink); background: var(--card); border: 1px solid var(--rule);
  border-radius: 5px; padding: 1px 8px; } .controls button { cursor: pointer; } .controls button:disabled { color: var(--faint); cursor: default; }
.controls output { min-width: 2.6em; font-variant-numeric: tabular-nums; } @media print { .controls { display: none; } }
.runs td i { width: 12px; height: 12px; } .differs td { font-variant-numeric: tabular-nums; } th code { font-weight: 600; }
.plot .tip { top: 4px; padding: 4px 8px; line-height: 17px; color: var(--ink); background: var(--card);
  border: 1px solid var(--rule); border-radius: 5px; white-space: pre; z-index: 1; }
.note, .nothing { margin: 8px 0 0; font-size: 13px; color: var(--soft); } .nothing { padding: 24px 0; text-align: center; }
.bar { display: grid; grid-template-columns: 1fr auto; gap: 2px 12px; margin: 12px 0; font-size: 13.5px; }
.bar .track { grid-column: 1 / -1; grid-row: 2; display: flex; gap: 2px; height: 20px; min-width: 0; } .bar .track i { background: var(--c); border-radius: 2px; min-width: 1px; }
.bar .total { font-variant-numeric: tabular-nums; color: var(--soft); white-space: nowrap; }
@media (max-width: 640px) { main { padding: 16px 12px 48px; } .plot { height: 180px; } .chart { padding: 10px 12px; }
  .tiles { grid-template-columns: 1fr 1fr; } }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: 13.5px; margin-top: 10px; }
th, td { text-align: left; padding: 4px 14px 4px 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
th { font-weight: 600; color: var(--soft); } td:first-child { white-space: nowrap; } .number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
td.number, th.number { padding: 4px 0 4px 14px; } td.effect { min-width: 16em; color: var(--soft); }
@media (max-width: 640px) { td:first-child { white-space: normal; } .settings thead { display: none; }
  .settings tr { display: block; padding: 6px 0; border-bottom: 1px solid var(--rule); }
  .settings td { display: block; border: 0; padding: 0; } .settings code { overflow-wrap: anywhere; } }
.box { padding: 8px 16px 10px; } .box.warm { background: var(--warm); } .box.hot { background: var(--hot); margin-top: 16px; }
.box ul { margin: 0; padding-left: 18px; } .box li { overflow-wrap: anywhere; }
code, pre { font: 12.5px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
code { overflow-wrap: anywhere; } td code { overflow-wrap: normal; }
pre { margin: 8px 0 4px; overflow-x: auto; white-space: pre; max-height: 30em; }
details { margin-top: 8px; } summary { cursor: pointer; font-size: 14px; color: var(--soft); } summary:hover { color: var(--ink); }
)css";

}  // namespace

std::string_view page_style() { return kStyle; }

std::string page_policy() {
  const base::Digest digest = base::sha256(page_script());
  return fmt::format("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{}'",
                     base::encode_base64(std::string(digest.begin(), digest.end())));
}

std::string whole_page(std::string_view title, std::string_view body, bool reloads) {
  constexpr int kSecondsBetweenReloads = 10;
  const std::string reload = reloads ? fmt::format("<meta http-equiv=\"refresh\" content=\"{}\">\n",
                                                   kSecondsBetweenReloads)
                                     : "";
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n{}"
      "<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n{}</main>\n"
      "<script>{}</script>\n</body>\n</html>\n",
      page_policy(), reload, escape_html(title), page_style(), body, page_script());
}

}  // namespace fullshard::report
