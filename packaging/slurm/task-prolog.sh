#!/bin/sh
# Slurm task prolog: sets the name of each task in `pump jobs`. Jobs find the node's service at
# /run/pump/socket.
#
# slurm.conf: TaskProlog=/etc/slurm/pump-task-prolog.sh. Lines "export NAME=value" that this
# prints become the task's environment; a user's own name has precedence.
set -eu

if [ -z "${PUMP_NAME:-}" ] && [ -n "${SLURM_JOB_ID:-}" ]; then
  echo "export PUMP_NAME=slurm-${SLURM_JOB_ID}.${SLURM_STEP_ID:-0}.${SLURM_PROCID:-0}"
fi
