#include <ATen/ops/empty.h>

#include <string>
#include <vector>

#include "fullshard/checkpoint/model_io.h"
#include "fullshard/checkpoint/name_match.h"
#include "fullshard/checkpoint/patient_work.h"
#include "fullshard/formats/source_sums.h"
#include "fullshard/shard/agreement.h"
#include "fullshard/shard/new_values.h"
#include "fullshard/stored/transposed_read.h"

namespace fullshard {
namespace {

void read_own_part(const TensorSource& source, const TensorMatch& match) {
  const auto& tensor = *match.tensor;
  const auto part = tensor.own_part();
  if (!part || part->values.numel() == 0) return;
  const bool is_here = part->values.is_cpu();
  const auto values =
      is_here ? part->values : at::empty(part->values.sizes(), part->values.scalar_type());
  if (match.transposed) {
    read_transposed(source, match.name, tensor.shape[0], tensor.shape[1], part->begin, values);
  } else {
    source.read(match.name, part->begin, values);
  }
  if (!is_here) part->values.copy_(values);
  const bool is_copy = tensor.whole.defined() && !tensor.whole.is_alias_of(part->values);
  if (is_copy) tensor.whole.copy_(part->values.view(tensor.shape));
}

}  // namespace

void load_weights(const TensorSource& source, ShardedModel& model, const LoadOptions& options) {
  auto& engine = model.engine();
  const auto tensors = model_tensors(engine);
  std::vector<TensorMatch> matches;
  // A folder may look different from another host: agree before anything is changed.
  throw_alike(patient_ranks(engine.mesh()),
              error_of([&] { matches = match_names(source, tensors, options); }), "load_weights");
  replace_values(engine, "load_weights", [&] {
    std::vector<std::string> names;
    for (const auto& match : matches) {
      read_own_part(source, match);
      names.push_back(match.name);
    }
    const auto& world = engine.mesh().world();
    check_sums_of(source, names, world.rank(), world.size());
  });
}

}  // namespace fullshard
