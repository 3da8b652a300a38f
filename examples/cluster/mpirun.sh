#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One process per rank, by Open MPI; no MPI library is linked, only its variables are read. Rank 0's host serves the store where ranks
# meet: name it in MASTER_ADDR where there are several hosts.
#
#   RANKS=4 ./mpirun.sh --model llama-15m --data tokens.bin              # this host
#   RANKS=16 HOSTS=node0:8,node1:8 ./mpirun.sh --model … --data …
set -euo pipefail

RANKS=${RANKS:-2}
MASTER_ADDR=${MASTER_ADDR:-$(cut -d: -f1 <<<"${HOSTS:-localhost}")}
FULLSHARD_JOB_SECRET=${FULLSHARD_JOB_SECRET:-$(head -c 32 /dev/urandom | base64)}
export MASTER_ADDR MASTER_PORT=${MASTER_PORT:-29500} FULLSHARD_JOB_SECRET

exec mpirun -n "$RANKS" ${HOSTS:+--host "$HOSTS"} ${MPIRUN_FLAGS:-} \
  -x MASTER_ADDR -x MASTER_PORT -x FULLSHARD_JOB_SECRET -x OMP_NUM_THREADS \
  "${FULLSHARD:-fullshard}" train "$@"
