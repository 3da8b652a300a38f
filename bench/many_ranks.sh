#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What ranks cost that only wait: bench/many_ranks.sh [RANKS ...]   (64 and 128 unless told)
# All ranks are on this machine, in pretended hosts of 8 (NCCL_HOSTID). For each number: the time to
# meet, that of a small all-reduce (the mean of 20), descriptors and memory of a rank and of rank 0,
# and what went over the loopback interface for each rank: the store, the connections of two groups
# across hosts, and those calls. In a network namespace of its own that is nobody else's traffic:
#   unshare -n bash -c 'ip link set lo up; bench/many_ranks.sh'
set -euo pipefail
build=${BUILD:-build}
port=${PORT:-29631}
ranks_per_host=8

# /sys shows the interfaces of the namespace that it was mounted in, /proc those of the process.
sent() { awk '$1 == "lo:" { print $10 }' /proc/self/net/dev; }

measure() {
  local ranks=$1 output before after
  output=$(mktemp)
  before=$(sent)
  for ((rank = ranks - 1; rank >= 0; --rank)); do
    NCCL_HOSTID=$((rank / ranks_per_host)) RANK=$rank WORLD_SIZE=$ranks OMP_NUM_THREADS=1 \
      MASTER_ADDR=127.0.0.1 MASTER_PORT=$port FULLSHARD_JOB_SECRET=idle \
      "$build/bin/test_programs/comm_world_rank" idle gloo >>"$output" &
  done
  wait
  after=$(sent)
  awk -v ranks="$ranks" -v bytes=$((after - before)) '
    { sum_met += $4; if ($4 > met) met = $4; call += $6; kib += $10 }
    $2 == 0 { first = $8 }
    $2 != 0 { others += $8; if ($8 > most) most = $8 }
    END {
      if (NR != ranks) { print "only", NR, "of", ranks, "ranks came"; exit 1 }
      printf "| %d | %.1f | %.1f | %.1f | %d | %.0f (at most %d) | %.0f | %.0f |\n", ranks, met,
        sum_met / NR, call / NR, first, others / (NR - 1), most, kib / NR / 1024, bytes / NR / 1024
    }' "$output"
  rm "$output"
}

echo "load before: $(cut -d' ' -f1-3 /proc/loadavg), $(nproc) cores"
echo "| ranks | last met s | mean met s | all-reduce ms | descriptors of rank 0 | of the others | MiB per rank | KiB sent per rank |"
echo "|---|---|---|---|---|---|---|---|"
for ranks in "${@:-64 128}"; do
  for each in $ranks; do measure "$each"; done
done
