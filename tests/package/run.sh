#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the Debian package and the wheel of a build, installs the one into an empty root folder and the other into a fresh virtual
# environment beside the build's torch, trains a step with each, and builds a project outside against the wheel. `make check-all
# CHECKS=package` runs it; it takes longer than a test of `make test` may.
#
#   tests/package/run.sh BUILD WORK
set -euo pipefail
readonly build=$(realpath "${1:?usage: run.sh BUILD WORK}") work=$(realpath -m "${2:?usage: run.sh BUILD WORK}")
source=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
readonly source
torch=$(realpath "$(sed -n 's/^FULLSHARD_TORCH_DIR:INTERNAL=//p' "$build/CMakeCache.txt")/../../..")
readonly torch

fail() {
  echo "error: package: $*" >&2
  exit 1
}
# Nothing of the build's environment: no LD_LIBRARY_PATH, no PATH into the tree.
clean() { env -i PATH=/usr/bin:/bin HOME="$work/home" OMP_NUM_THREADS=1 "$@"; }

train_once() { # train_once FULLSHARD NAME
  (cd "$work/home" && clean "$1" data make --kind sums --samples 100 --seed 1 --output sums.txt >/dev/null &&
    clean "$1" train --ranks 2 --model "$work/home/tiny" --tokenizer bytes --data sums.txt --sequence-length 32 \
      --micro-batch 2 --steps 2 --quiet --json --output "$2" | grep -q '"status":"done"') || fail "$2: train failed"
  echo "package: $2 trains"
}
knows_no_build() { # knows_no_build PROGRAM
  ! readelf -d "$1" | grep -E 'RPATH|RUNPATH' | grep -v "\[\$ORIGIN/../lib/bundled:\$ORIGIN/../lib/torch:\$ORIGIN/../../torch/lib\]" ||
    fail "$1: looks for libraries in folders of this machine"
}

rm -rf "$work"
mkdir -p "$work/home/tiny"
cat >"$work/home/tiny/config.json" <<'END'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
 "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 260, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
 "hidden_act": "silu"}
END
"$source/scripts/package.sh" "$build" "$work/packages"

dpkg-deb -x "$work"/packages/*.deb "$work/root"
depends=$(dpkg-deb -f "$work"/packages/*.deb Depends)
for library in libc6 libstdc++6 libfmt; do
  [[ $depends == *$library* ]] || fail "the Debian package does not depend on $library: $depends"
done
knows_no_build "$work/root/usr/bin/fullshard-core"
! clean "$work/root/usr/bin/fullshard-core" facts >/dev/null 2>&1 || fail "runs without a libtorch: which one?"
ln -s "$torch/lib" "$work/root/usr/lib/torch"
clean "$work/root/usr/bin/fullshard" --version --verbose
train_once "$work/root/usr/bin/fullshard" deb

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --no-deps --no-index "$work"/packages/*.whl
site=$(echo "$work"/venv/lib/python3*/site-packages)
# A torch that is installed there already; CMake would look behind a link to the folder itself.
mkdir "$site/torch"
ln -s "$torch/lib" "$torch/include" "$site/torch/"
cp -r "$torch/share" "$site/torch/share"
[[ -e $site/fullshard/lib/bundled/libfmt.so.9 || -n $(ls "$site"/fullshard/lib/bundled/libfmt*) ]] || fail "libfmt is missing"
train_once "$work/venv/bin/fullshard" wheel

prefix=$("$work/venv/bin/python" -m fullshard --cmake)
clean cmake -S "$source/tests/install" -B "$work/outside" -DCMAKE_PREFIX_PATH="$prefix" \
  -DPROGRAM="$source/examples/shard_your_module.cc" >/dev/null
grep -q "^Torch_DIR:PATH=$work/venv" "$work/outside/CMakeCache.txt" || fail "not the torch beside the wheel was found"
cmake --build "$work/outside" >/dev/null
clean "$work/venv/bin/fullshard" launch --ranks 2 -- "$work/outside/outside" >/dev/null
echo "package: a project outside builds against the wheel and runs"
