#!/bin/bash
# slurm.sh check       says what is missing
# slurm.sh check-pmix  says what srun --mpi=pmix lacks
# slurm.sh up N FOLDER starts a Slurm of N nodes on the hosts of hosts.sh, with its files in FOLDER, and waits until they are idle.
#                      It ends with the hosts. SLURM_CONF=FOLDER/slurm.conf selects it, on host 0.
set -eu
export PATH=$PATH:/usr/sbin:/sbin
hosts=$(dirname "$(readlink -f "$0")")/hosts.sh
case $1 in
check)
    missing=$(for command in slurmctld slurmd srun sbatch munged ip nsenter unshare; do command -v $command > /dev/null || echo -n " $command"; done)
    [ -z "$missing" ] || { echo "wants$missing: Debian, Ubuntu: apt install --no-install-recommends slurm-wlm munge iproute2 util-linux" >&2; exit 1; }
    [ "$(id -u)" = 0 ] || { echo "wants root, for network namespaces" >&2; exit 1; } ;;
check-pmix)
    # Slurm's plugin loads libpmix.so, which Debian has in the package for development
    [ -e "$(echo /usr/lib/*/pmix2/lib/libpmix.so)" ] || ldconfig -p | grep -q 'libpmix\.so ' || {
        echo "srun --mpi=pmix wants libpmix.so: Debian, Ubuntu: apt install --no-install-recommends libpmix-dev" >&2
        exit 1
    } ;;
up)
    n=$2 folder=$3
    mkdir -p "$folder"/{state,munge} "$folder"/{spool,tmp}/pyhost{0..15}
    chmod 700 "$folder/munge"
    (umask 077; head -c 1024 /dev/urandom > "$folder/munge/key")
    echo "CgroupPlugin=cgroup/v1" > "$folder/cgroup.conf" # not used, but the plugin is loaded
    cat > "$folder/slurm.conf" <<CONF
ClusterName=pyshmem
SlurmctldHost=pyhost0(10.77.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket,cred_expire=20
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool/%n
TmpFS=$folder/tmp/%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/%n.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
KillWait=5
JobRequeue=0
PropagateResourceLimits=NONE
SlurmdParameters=config_overrides
NodeName=pyhost[0-$((n - 1))] NodeAddr=10.77.0.[1-$n] CPUs=4 RealMemory=4000
PartitionName=batch Nodes=ALL Default=YES State=UP
CONF
    export SLURM_CONF=$folder/slurm.conf
    "$hosts" enter 0 munged --key-file "$folder/munge/key" --socket "$folder/munge/socket" --pid-file "$folder/munge/pid" \
        --log-file "$folder/munge/log" --seed-file "$folder/munge/seed" --force 2> "$folder/munge/said"
    "$hosts" enter 0 slurmctld
    for ((i = 0; i < n; i++)); do "$hosts" enter $i slurmd -N pyhost$i; done
    for ((tick = 0; tick < 300; tick++)); do
        [ "$("$hosts" enter 0 sinfo --noheader --Node --format=%T 2> /dev/null | grep -c '^idle$')" != "$n" ] || exit 0
        sleep 0.2
    done
    echo "slurm.sh: the nodes are not idle; see the logs in $folder" >&2
    exit 1 ;;
esac
