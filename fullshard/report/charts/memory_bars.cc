// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/charts/memory_bars.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "fullshard/base/bytes.h"
#include "fullshard/report/charts/html_text.h"
#include "fullshard/report/records/number_text.h"

namespace fullshard::report {
namespace {

constexpr size_t kMostRanks = 8;
// A purpose always has the same colour, whatever else is held.
constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kColours = {
    {{"parameters", "c1"},
     {"gradients", "c2"},
     {"master", "c3"},
     {"optimizer", "c4"},
     {"activations", "c5"},
     {"workspace", "c6"}}};

std::string_view colour_of(const std::string& purpose) {
  for (const auto& [name, colour] : kColours) {
    if (name == purpose) return colour;
  }
  return "rest";
}

using Shares = std::vector<MemoryShare>;

// The memory held on one tier.
struct Bar {
  std::string name;
  Shares shares;

  double bytes() const {  // a sum of the sizes that a file claims must not overflow
    return std::accumulate(shares.begin(), shares.end(), 0.0, [](double sum, const auto& share) {
      return sum + static_cast<double>(std::max<int64_t>(0, share.bytes));
    });
  }
};

std::string bytes_text(double bytes) {
  return format_bytes(static_cast<int64_t>(std::clamp(bytes, 0.0, 9e18)));
}

double bytes_of(const Shares& shares) { return Bar{"", shares}.bytes(); }

// One bar per tier, in the order in which they appear.
std::vector<Bar> bars_of(const std::string& name, const Shares& shares, bool names_tiers) {
  std::vector<Bar> bars;
  for (const MemoryShare& share : shares) {
    const std::string title = names_tiers ? fmt::format("{}, {}", name, share.tier) : name;
    auto bar =
        std::find_if(bars.begin(), bars.end(), [&](const Bar& b) { return b.name == title; });
    if (bar == bars.end()) bar = bars.insert(bars.end(), Bar{title, {}});
    bar->shares.push_back(share);
  }
  return bars;
}

bool has_tiers(const MemoryPlan& plan) {
  std::string first;
  for (const auto& shares : plan.ranks) {
    for (const MemoryShare& share : shares) {
      if (first.empty()) first = share.tier;
      if (share.tier != first) return true;
    }
  }
  return false;
}

std::string bar_html(const Bar& bar, double longest, std::string_view beside) {
  std::string parts;
  for (const MemoryShare& share : bar.shares) {
    if (share.bytes <= 0) continue;
    const double width = 100.0 * static_cast<double>(share.bytes) / longest;
    parts += fmt::format(R"(<i class="{}" style="width:{:.3f}%" title="{}: {}"></i>)",
                         colour_of(share.purpose), width, escape_html(share.purpose),
                         format_bytes(share.bytes));
  }
  return fmt::format(R"(<div class="bar"><span class="name">{}</span><span class="track">{}</span>)"
                     R"(<span class="total">{}{}</span></div>)",
                     escape_html(bar.name), parts, bytes_text(bar.bytes()), beside);
}

struct ShownRank {
  size_t rank;
  std::string name;
};

std::vector<ShownRank> shown_ranks(const MemoryPlan& plan, int world) {
  const size_t count = plan.ranks.size();
  if (count == 1 && world > 1) return {{0, "each rank"}};
  std::vector<ShownRank> shown;
  if (count <= kMostRanks) {
    for (size_t rank = 0; rank < count; ++rank)
      shown.push_back({rank, fmt::format("rank {}", rank)});
    return shown;
  }
  const auto [least, most] = std::minmax_element(
      plan.ranks.begin(), plan.ranks.end(),
      [](const Shares& a, const Shares& b) { return bytes_of(a) < bytes_of(b); });
  if (bytes_of(*least) == bytes_of(*most)) return {{0, fmt::format("each of {} ranks", count)}};
  for (const auto& [rank, which] : {std::pair(most, "most"), std::pair(least, "least")}) {
    const auto number = static_cast<size_t>(rank - plan.ranks.begin());
    shown.push_back({number, fmt::format("rank {} of {}, the {}", number, count, which)});
  }
  return shown;
}

double bytes_for(const Shares& shares, std::string_view purpose) {
  double sum = 0;
  for (const MemoryShare& share : shares) {
    if (share.purpose == purpose) sum += static_cast<double>(share.bytes);
  }
  return sum;
}

// In a model of few units most gradients may be whole at once, in addition to the shards.
std::string gradients_note(const Shares& unsharded, const Shares& rank) {
  const double whole = bytes_for(unsharded, "gradients"), own = bytes_for(rank, "gradients");
  if (whole == 0 || own <= whole) return {};
  return "<p class=\"note\">A rank also counts the whole gradients of units that are under way, "
         "next to its shard of all: in a model of few units that may be more than one copy.</p>";
}

// In the order of their colours, those without a colour last.
std::vector<std::string> purposes_of(const Shares& shares) {
  std::vector<std::string> purposes;
  for (const auto& [name, colour] : kColours) purposes.emplace_back(name);
  for (const MemoryShare& share : shares) {
    if (std::find(purposes.begin(), purposes.end(), share.purpose) == purposes.end()) {
      purposes.push_back(share.purpose);
    }
  }
  std::erase_if(purposes, [&](const auto& purpose) { return bytes_for(shares, purpose) <= 0; });
  return purposes;
}

std::string legend_of(const Shares& shares) {
  std::string text = R"(<ul class="legend">)";
  for (const std::string& purpose : purposes_of(shares)) {
    text +=
        fmt::format(R"(<li><i class="{}"></i>{}</li>)", colour_of(purpose), escape_html(purpose));
  }
  return text + "</ul>";
}

// Purposes in numbers, next to each other: of one rank, and without sharding.
std::string table_html(const Shares& unsharded, const Shares& rank, std::string_view rank_name) {
  Shares both = unsharded;
  both.insert(both.end(), rank.begin(), rank.end());
  std::string rows;
  for (const std::string& purpose : purposes_of(both)) {
    rows += fmt::format(
        R"(<tr><td><i class="{}"></i>{}</td><td class="number">{}</td><td class="number">{}</td></tr>)",
        colour_of(purpose), escape_html(purpose), bytes_text(bytes_for(rank, purpose)),
        bytes_text(bytes_for(unsharded, purpose)));
  }
  return fmt::format(
      R"(<div class="wide"><table><thead><tr><th>planned at the peak</th><th class="number">{}</th>)"
      R"(<th class="number">unsharded</th></tr></thead><tbody>{}</tbody></table></div>)",
      rank_name, rows);
}

}  // namespace

std::string memory_bars_html(const MemoryPlan& plan, int world, const std::string& note) {
  const bool names_tiers = has_tiers(plan);
  const double whole = bytes_of(plan.unsharded);
  std::vector<std::pair<Bar, std::string>> bars;  // each with the text next to it
  Shares all = plan.unsharded;
  for (Bar& bar : bars_of("unsharded", plan.unsharded, names_tiers)) bars.emplace_back(bar, "");
  const std::vector<ShownRank> shown = shown_ranks(plan, world);
  for (const auto& [rank, name] : shown) {
    for (Bar& bar : bars_of(name, plan.ranks[rank], names_tiers)) {
      const std::string share = whole > 0 ? ", " + format_percent(bar.bytes() / whole) : "";
      bars.emplace_back(bar, share);
    }
    all.insert(all.end(), plan.ranks[rank].begin(), plan.ranks[rank].end());
  }
  double longest = 1;
  for (const auto& [bar, beside] : bars) longest = std::max(longest, bar.bytes());
  std::string body;
  for (const auto& [bar, beside] : bars) body += bar_html(bar, longest, beside);
  if (bars.empty()) body = R"(<p class="nothing">no memory plan in run.json</p>)";
  if (!note.empty()) body += fmt::format("<p class=\"note\">{}</p>", escape_html(note));
  if (!shown.empty()) {
    const Shares& first = plan.ranks[shown[0].rank];
    body += table_html(plan.unsharded, first, shown[0].name);
    body += gradients_note(plan.unsharded, first);
  }
  return fmt::format(
      "<figure class=\"chart\"><figcaption><b>Memory by purpose</b>{}</figcaption>{}</figure>\n",
      legend_of(all), body);
}

}  // namespace fullshard::report
