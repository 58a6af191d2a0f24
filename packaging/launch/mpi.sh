#!/bin/sh
# Runs an MPI program under pump: mpirun starts this script once for each rank.
#   mpirun -n 4 packaging/launch/mpi.sh ./solver ...
# Each rank is a job, so that the node's service divides a GPU between its ranks. Buffers of UCX and
# NCCL stay device memory by default, because they are registered with network cards.
set -eu
[ $# -gt 0 ] || { echo "usage: mpirun ... $0 program [arguments]" >&2; exit 2; }
# Open MPI, Intel MPI and MPICH, Slurm's srun.
rank="${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-${SLURM_PROCID:-0}}}"
# shellcheck disable=SC2086 # options are words
exec pump-run --name "rank-$rank" ${PUMP_RUN_OPTIONS:-} -- "$@"
