#!/bin/sh
# Runs a Slurm task under pump with the share of the GPU that --gres=shard gave the job.
#   srun --gres=shard:1 packaging/slurm/share.sh python train.py
# If each GPU has N shards, the budget of a job with one shard is 1/N of the GPU's memory. PUMP_SHARDS sets
# N; otherwise the script queries Slurm. Without shards pump divides the GPU. PUMP_BUDGET, or --budget in
# PUMP_RUN_OPTIONS, has precedence.
set -eu
[ $# -gt 0 ] || { echo "usage: srun ... $0 program [arguments]" >&2; exit 2; }

fail() { echo "$0: $*" >&2; exit 2; }

# Prints how many of $1 the node has, from a line such as "Gres=gpu:a100:2,shard:8".
count() {
  scontrol show node "${SLURMD_NODENAME:-}" 2>/dev/null | sed -n 's/^ *Gres=//p' | tr ',' '\n' |
    sed -n "s/^$1:\([^:(]*:\)\{0,1\}\([0-9][0-9]*\).*/\2/p" | awk '{ n += $1 } END { print n + 0 }'
}

mine="${SLURM_SHARDS_ON_NODE:-}"
budget=""
if [ -n "$mine" ] && [ -z "${PUMP_BUDGET:-}" ]; then
  all="${PUMP_SHARDS:-}"
  if [ -z "$all" ]; then
    gpus="$(count gpu)" shards="$(count shard)"
    [ "$gpus" -gt 0 ] || fail "Slurm reports no shards of this node; set PUMP_SHARDS to the number of shards of a GPU"
    all=$((shards / gpus))
  fi
  case "$mine:$all" in
    *[!0-9:]* | :* | *: | *:0) fail "cannot compute a share from '$mine' shards of this job and '$all' of a GPU" ;;
  esac
  share=$((100 * mine / all))
  [ "$share" -lt 1 ] && share=1
  [ "$share" -lt 100 ] && budget="--budget=$share%"
fi
name="slurm-${SLURM_JOB_ID:-0}.${SLURM_STEP_ID:-0}.${SLURM_PROCID:-0}"
# shellcheck disable=SC2086 # options are words
exec pump-run --name "$name" $budget ${PUMP_RUN_OPTIONS:-} -- "$@"
