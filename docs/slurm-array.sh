#!/bin/bash
#SBATCH --job-name=tunnelmark
#SBATCH --exclusive
# One job of a study as one task of a Slurm array. --exclusive: two labs on one node at a time would
# disturb each other. Submit it with as many tasks as the study has jobs, then put the parts together:
#
#   sbatch --array=1-"$(tunnelmark plan STUDY --ids | wc -l)" slurm-array.sh STUDY RESULTS
#   tunnelmark merge RESULTS/parts/* --into RESULTS/whole
#   tunnelmark report RESULTS/whole
set -euo pipefail
study=$1
results=$2
job=$(tunnelmark plan "$study" --ids | sed -n "${SLURM_ARRAY_TASK_ID}p")
tunnelmark run "$study" --job "$job" --results "$results/parts" --quiet
