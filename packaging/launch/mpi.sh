#!/bin/sh
# MPI under pump: mpirun starts this in front of the program, once for each rank.
#   mpirun -n 4 packaging/launch/mpi.sh ./solver ...
# Each rank is a job of its own: ranks on one GPU then share it by the node's service. UCX's
# and NCCL's buffers stay device memory by default, for they are registered with network cards.
set -eu
[ $# -gt 0 ] || { echo "usage: mpirun ... $0 program [arguments]" >&2; exit 2; }
# Open MPI, Intel MPI and MPICH, Slurm's srun.
rank="${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-${SLURM_PROCID:-0}}}"
# shellcheck disable=SC2086 # options are words
exec pump-run --name "rank-$rank" ${PUMP_RUN_OPTIONS:-} -- "$@"
