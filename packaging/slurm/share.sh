#!/bin/sh
# A Slurm task under pump, with the share of the GPU that --gres=shard gave the job.
#   srun --gres=shard:1 packaging/slurm/share.sh python train.py
# Of N shards that the node has on each GPU, a job with one may keep 1/N of the GPU's memory
# there; what else it allocates is paged. PUMP_SHARDS: N, else Slurm is asked. Without shards
# pump's own rules share the GPU. PUMP_BUDGET, or --budget in PUMP_RUN_OPTIONS, goes first.
set -eu
[ $# -gt 0 ] || { echo "usage: srun ... $0 program [arguments]" >&2; exit 2; }

fail() { echo "$0: $*" >&2; exit 2; }

# "Gres=gpu:a100:2,shard:8": the node has so many of $1.
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
    [ "$gpus" -gt 0 ] || fail "Slurm names no shards of this node; set PUMP_SHARDS to those of a GPU"
    all=$((shards / gpus))
  fi
  case "$mine:$all" in
    *[!0-9:]* | :* | *: | *:0) fail "shards of this job '$mine', of a GPU '$all': no share follows" ;;
  esac
  share=$((100 * mine / all))
  [ "$share" -lt 1 ] && share=1
  [ "$share" -lt 100 ] && budget="--budget=$share%"
fi
name="slurm-${SLURM_JOB_ID:-0}.${SLURM_STEP_ID:-0}.${SLURM_PROCID:-0}"
# shellcheck disable=SC2086 # options are words
exec pump-run --name "$name" $budget ${PUMP_RUN_OPTIONS:-} -- "$@"
