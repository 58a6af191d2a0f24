#!/bin/sh
# Runs torchrun under pump: one job for each node, whose workers are the job's clients.
#   packaging/launch/torchrun.sh --nproc-per-node 2 train.py ...
# pump-run starts torchrun, so that all workers share the job's lease on each GPU and are listed as
# one job. NCCL's buffers stay device memory by default.
set -eu
[ $# -gt 0 ] || { echo "usage: $0 [torchrun options] script [arguments]" >&2; exit 2; }
name="torchrun-${SLURM_JOB_ID:-$$}"
# shellcheck disable=SC2086 # options are words
exec pump-run --name "$name" ${PUMP_RUN_OPTIONS:-} -- torchrun "$@"
