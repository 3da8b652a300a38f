// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/storage/agreement.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "fullshard/base/error.h"
#include "fullshard/engine/plan/unit_name.h"
#include "fullshard/tensor/error_text.h"

namespace fullshard::engine {
namespace {

// "embedding.weight [11, 5] Float"
std::string describe_tensor(const std::string& name, const at::Tensor& tensor) {
  return fmt::format("{} [{}] {}", name, fmt::join(tensor.sizes().vec(), ", "),
                     c10::toString(tensor.scalar_type()));
}

// One line per parameter and buffer, in order.
std::string describe(const WrapPlan& plan, bool taken) {
  std::string text;
  const auto add = [&](const NamedParameter& parameter, const std::string& place, bool mark) {
    text +=
        fmt::format("{}{}{} in {}\n", describe_tensor(parameter.names.front(), parameter.tensor),
                    parameter.tensor.requires_grad() ? "" : " frozen",
                    mark && parameter.tensor.is_meta() ? " deferred" : "", place);
  };
  for (const auto& unit : plan.units) {
    const auto place = describe_unit(unit.path);
    for (const auto& parameter : unit.parameters) add(parameter, place, !taken);
    for (const auto& buffer : unit.buffers) {
      text += fmt::format("buffer {}{} in {}\n", describe_tensor(buffer.name, buffer.tensor),
                          !taken && buffer.tensor.is_meta() ? " deferred" : "", place);
    }
  }
  // Nobody sends what ignored modules hold, so it is deferred everywhere or nowhere.
  for (const auto& parameter : plan.ignored_parameters) {
    if (parameter.tensor.is_meta()) add(parameter, "an ignored module", true);
  }
  return text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string line_or_end(const std::vector<std::string>& lines, size_t i) {
  return i < lines.size() ? lines[i] : "nothing more";
}

}  // namespace

bool is_alone(const Communicator& everyone) {
  return everyone.size() == 1 || everyone.backend_name() == "fake";
}

void check_ranks_agree(const Communicator& everyone, const WrapPlan& plan, bool taken) {
  if (is_alone(everyone)) return;
  const auto texts = gather_texts(everyone, describe(plan, taken), "the comparison of models");
  for (int rank = 1; rank < everyone.size(); ++rank) {
    if (texts[rank] == texts[0]) continue;
    const auto first = lines_of(texts[0]);
    const auto other = lines_of(texts[rank]);
    size_t i = 0;
    while (i < first.size() && i < other.size() && first[i] == other[i]) ++i;
    fail(
        "shard: ranks hold different models: rank 0 has {}, rank {} has {}; build the same model "
        "on "
        "every rank",
        line_or_end(first, i), rank, line_or_end(other, i));
  }
}

std::vector<std::string> gather_texts(const Communicator& everyone, const std::string& text,
                                      std::string_view what) {
  auto lengths = at::empty({everyone.size()}, at::kLong);
  auto length = at::empty({1}, at::kLong);
  length.data_ptr<int64_t>()[0] = static_cast<int64_t>(text.size());
  everyone.all_gather(lengths, length, what).wait();
  const auto* all = lengths.const_data_ptr<int64_t>();
  const int64_t longest = std::max<int64_t>(*std::max_element(all, all + everyone.size()), 1);

  auto mine = at::zeros({longest}, at::kByte);
  std::copy(text.begin(), text.end(), mine.data_ptr<uint8_t>());
  auto bytes = at::empty({everyone.size() * longest}, at::kByte);
  everyone.all_gather(bytes, mine, what).wait();
  std::vector<std::string> texts;
  for (int rank = 0; rank < everyone.size(); ++rank) {
    const auto* begin = reinterpret_cast<const char*>(bytes.const_data_ptr<uint8_t>());
    texts.emplace_back(begin + rank * longest, static_cast<size_t>(all[rank]));
  }
  return texts;
}

std::optional<Error> error_of(const std::function<void()>& body) {
  try {
    body();
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    return Error(error_text(error));
  }
}

void throw_alike(const Communicator& everyone, const std::optional<Error>& own,
                 std::string_view what) {
  if (is_alone(everyone)) {
    if (own) throw *own;
    return;
  }
  // The kind as one digit, then the text.
  const auto text = own ? fmt::format("{}{}", own->exit_status(), own->what()) : std::string();
  const auto texts = gather_texts(everyone, text, what);
  const auto first = std::find_if(texts.begin(), texts.end(),
                                  [](const std::string& other) { return !other.empty(); });
  if (first == texts.end()) return;
  const auto kind = static_cast<ErrorKind>(first->front() - '0');
  const bool all_alike = std::all_of(texts.begin(), texts.end(),
                                     [&](const std::string& other) { return other == *first; });
  if (all_alike) throw Error(first->substr(1), kind);
  throw Error(fmt::format("rank {}: {}", first - texts.begin(), first->substr(1)), kind);
}

}  // namespace fullshard::engine
