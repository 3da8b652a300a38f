// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fullshard/checkpoint/model_io.h"
#include "fullshard/checkpoint/name_match.h"
#include "fullshard/checkpoint/patient_work.h"
#include "fullshard/engine/engine_access.h"
#include "fullshard/engine/new_values.h"
#include "fullshard/engine/storage/agreement.h"
#include "fullshard/formats/weights/source_sums.h"
#include "fullshard/stored/transposed_read.h"

namespace fullshard {
namespace {

// What rests on a disk, unchanged for good, need not be copied there where the file has its bytes.
// False: the values are to be written.
bool is_left_in_file(const TensorSource& source, const checkpoint::TensorMatch& match,
                     const checkpoint::ModelTensor::Part& part, const engine::Engine& engine) {
  auto* const disk = engine.tiers().disk_of_parameters();
  const bool may_stay = engine.options().offload.parameters.reads_in_place && disk != nullptr;
  if (!may_stay || !disk->holds(part.values)) return false;
  const auto place = source.place_of(match.name);
  if (!place || match.transposed || source.find(match.name)->dtype != part.values.scalar_type()) {
    disk->reserve_part(part.values);
    return false;
  }
  const int64_t begin = part.begin * static_cast<int64_t>(part.values.element_size());
  disk->link(part.values, {place->descriptor, place->offset + begin});
  return true;
}

void read_own_part(const TensorSource& source, const checkpoint::TensorMatch& match,
                   const engine::Engine& engine) {
  const auto& tensor = *match.tensor;
  const auto part = tensor.own_part();
  if (!part || part->values.numel() == 0 || is_left_in_file(source, match, *part, engine)) return;
  const bool is_here = part->values.is_cpu();
  const auto values =
      is_here ? part->values : at::empty(part->values.sizes(), part->values.scalar_type());
  if (match.transposed) {
    stored::read_transposed(source, match.name, tensor.shape[0], tensor.shape[1], part->begin,
                            values);
  } else {
    source.read(match.name, part->begin, values);
  }
  if (!is_here) part->values.copy_(values);
  const bool is_copy = tensor.whole.defined() && !tensor.whole.is_alias_of(part->values);
  if (is_copy) tensor.whole.copy_(part->values.view(tensor.shape));
}

// So many elements of the file at a time, or one row.
constexpr int64_t kRowsNumel = 1 << 20;

void read_rows(const TensorSource& source, const checkpoint::TensorMatch& match,
               const engine::Engine& engine, const LoadOptions& options) {
  const auto& tensor = *match.tensor;
  const auto part = tensor.own_part();
  if (!part || part->values.numel() == 0) return;
  if (auto* const disk = engine.tiers().disk_of_parameters();
      disk != nullptr && disk->holds(part->values)) {
    disk->reserve_part(part->values);
  }
  const auto& stored = source.find(match.name)->shape;
  const int64_t num_rows = tensor.shape[0];
  const int64_t columns = match.transposed ? stored[0] : stored[1];
  const int64_t own_columns = tensor.numel() / num_rows;  // of the parameter
  const int64_t end = part->begin + part->values.numel();
  const int64_t last = (end + own_columns - 1) / own_columns;
  const int64_t step = std::max<int64_t>(kRowsNumel / std::max<int64_t>(columns, 1), 1);
  for (int64_t first = part->begin / own_columns; first < last; first += step) {
    const int64_t count = std::min(step, last - first);
    const auto rows = at::empty({count * columns}, at::kFloat);
    if (match.transposed) {
      stored::read_transposed(source, match.name, num_rows, columns, first * columns, rows);
    } else {
      source.read(match.name, first * columns, rows);
    }
    const auto made = options.from_rows(tensor.names.front(), rows.view({count, columns}));
    const int64_t from = std::max(first * own_columns, part->begin);
    const int64_t to = std::min((first + count) * own_columns, end);
    part->values.narrow(0, from - part->begin, to - from)
        .copy_(made.reshape({-1}).narrow(0, from - first * own_columns, to - from));
  }
}

}  // namespace

void load_weights(const TensorSource& source, ShardedModel& model, const LoadOptions& options) {
  auto& engine = engine::EngineAccess::of(model);
  const auto tensors = checkpoint::model_tensors(engine);
  std::vector<checkpoint::TensorMatch> matches;
  // A folder may look different from another host: agree before anything is changed.
  engine::throw_alike(checkpoint::patient_ranks(engine.mesh()), engine::error_of([&] {
                        matches = checkpoint::match_names(source, tensors, options);
                      }),
                      "load_weights");
  engine::replace_values(engine, "load_weights", [&] {
    std::vector<std::string> names;
    for (const auto& match : matches) {
      const bool is_made =
          checkpoint::is_made_from_rows(*match.tensor, source.find(match.name)->dtype, options);
      is_made ? read_rows(source, match, engine, options) : read_own_part(source, match, engine);
      names.push_back(match.name);
    }
    const auto& world = engine.mesh().world();
    formats::check_sums_of(source, names, world.rank(), world.size());
  });
}

}  // namespace fullshard
