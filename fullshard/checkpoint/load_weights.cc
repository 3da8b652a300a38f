// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>

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
      read_own_part(source, match, engine);
      names.push_back(match.name);
    }
    const auto& world = engine.mesh().world();
    formats::check_sums_of(source, names, world.rank(), world.size());
  });
}

}  // namespace fullshard
