#!/bin/sh
# Slurm task prolog: names each task's job, as people look for it in `pump jobs`. The node's
# service is found by itself, at /run/pump/socket.
#
# slurm.conf: TaskProlog=/etc/slurm/pump-task-prolog.sh. Lines "export NAME=value" that this
# prints become the task's environment; a user's own setting goes before ours.
set -eu

if [ -z "${PUMP_NAME:-}" ] && [ -n "${SLURM_JOB_ID:-}" ]; then
  echo "export PUMP_NAME=slurm-${SLURM_JOB_ID}.${SLURM_STEP_ID:-0}.${SLURM_PROCID:-0}"
fi
