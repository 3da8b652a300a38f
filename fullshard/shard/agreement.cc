#include "fullshard/shard/agreement.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "fullshard/base/error.h"

namespace fullshard {
namespace {

// One line per parameter, in order.
std::string describe(const WrapPlan& plan) {
  std::string text;
  for (const auto& unit : plan.units) {
    for (const auto& parameter : unit.parameters) {
      text += fmt::format("{} [{}] {}{} in unit '{}'\n", parameter.names.front(),
                          fmt::join(parameter.tensor.sizes().vec(), ", "),
                          c10::toString(parameter.tensor.scalar_type()),
                          parameter.tensor.requires_grad() ? "" : " frozen", unit.path);
    }
  }
  return text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> gather_texts(Communicator everyone, const std::string& text) {
  auto lengths = at::empty({everyone.size()}, at::kLong);
  auto length = at::empty({1}, at::kLong);
  length.data_ptr<int64_t>()[0] = static_cast<int64_t>(text.size());
  everyone.all_gather(lengths, length, "the comparison of models").wait();
  const auto* all = lengths.const_data_ptr<int64_t>();
  const int64_t longest = std::max<int64_t>(*std::max_element(all, all + everyone.size()), 1);

  auto mine = at::zeros({longest}, at::kByte);
  std::copy(text.begin(), text.end(), mine.data_ptr<uint8_t>());
  auto bytes = at::empty({everyone.size() * longest}, at::kByte);
  everyone.all_gather(bytes, mine, "the comparison of models").wait();
  std::vector<std::string> texts;
  for (int rank = 0; rank < everyone.size(); ++rank) {
    const auto* begin = reinterpret_cast<const char*>(bytes.const_data_ptr<uint8_t>());
    texts.emplace_back(begin + rank * longest, static_cast<size_t>(all[rank]));
  }
  return texts;
}

std::string line_or_end(const std::vector<std::string>& lines, size_t i) {
  return i < lines.size() ? lines[i] : "nothing more";
}

}  // namespace

void check_ranks_agree(const Communicator& everyone, const WrapPlan& plan) {
  if (everyone.size() == 1 || everyone.backend_name() == "fake") return;
  const auto texts = gather_texts(everyone, describe(plan));
  for (int rank = 1; rank < everyone.size(); ++rank) {
    if (texts[rank] == texts[0]) continue;
    const auto first = lines_of(texts[0]);
    const auto other = lines_of(texts[rank]);
    size_t i = 0;
    while (i < first.size() && i < other.size() && first[i] == other[i]) ++i;
    fail(
        "shard: ranks hold different models; parameter {}: rank 0 has {}, rank {} has {}; build "
        "the same model on every rank",
        i, line_or_end(first, i), rank, line_or_end(other, i));
  }
}

}  // namespace fullshard
