#!/usr/bin/env bash
# Runs a command on a Slurm of one node, which lives only as long as the command:
#
#     tests/slurm/start_slurm.sh bash         # a shell with sbatch, squeue and scontrol
#
# It needs munge, slurmctld and slurmd (Debian: apt-get install slurm-wlm munge). Keys, configuration, logs and state are
# in a temporary folder, and the system's own Slurm is not touched. The node claims four CPUs, so that jobs run side by side.
set -euo pipefail
PATH="$PATH:/usr/sbin:/sbin"
PATIENCE=60  # seconds until the node must be idle, and until canceled jobs must be gone

folder=$(mktemp -d "${TMPDIR:-/tmp}/slurm.XXXXXX")
daemons=()
export SLURM_CONF="$folder/slurm.conf"

wait_until() {
    local deadline=$((SECONDS + PATIENCE))
    until "$@"; do
        ((SECONDS < deadline)) || return 1
        sleep 0.2
    done
}
node_is_idle() { [[ $(sinfo --noheader --format=%T 2> "$folder/sinfo.log") == idle ]]; }
no_job_is_left() { [[ -z $(squeue --noheader) ]]; }

stop() {
    trap '' INT TERM
    if [[ -e $folder/started ]]; then
        scancel --user="$(id -un)" && wait_until no_job_is_left || true
    fi
    for ((i = ${#daemons[@]} - 1; i >= 0; i--)); do
        kill "${daemons[i]}" 2> /dev/null || true
        wait "${daemons[i]}" || true
    done
    rm -rf "$folder"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

mkdir "$folder/spool" "$folder/state"
chmod 755 "$folder"
head -c 1024 /dev/urandom > "$folder/munge.key"
chmod 600 "$folder/munge.key"
read -r controller_port node_port < <(python3 -c '
import socket
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(each.getsockname()[1] for each in sockets))')
host=$(hostname -s)
cat > "$SLURM_CONF" << END
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$controller_port
SlurmdPort=$node_port
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
# A requeued job waits until its credentials have expired, by default for two minutes.
AuthInfo=socket=$folder/munge.socket,cred_expire=5
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,sched_min_interval=0
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=30
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
NodeName=$host NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=test Nodes=$host Default=YES MaxTime=INFINITE State=UP
END

start() {
    "$@" > "$folder/$(basename "$1").log" 2>&1 &
    daemons+=($!)
}
start munged --foreground --force --key-file="$folder/munge.key" --socket="$folder/munge.socket" \
    --pid-file="$folder/munged.pid" --seed-file="$folder/munged.seed" --log-file="$folder/munged.txt"
wait_until test -S "$folder/munge.socket"
start slurmctld -D -f "$SLURM_CONF"
start slurmd -D -f "$SLURM_CONF"
wait_until node_is_idle || {
    tail -n 20 "$folder"/*.log "$folder"/munged.txt >&2
    exit 1
}
touch "$folder/started"
"$@"
