#!/usr/bin/env bash
# A Slurm cluster of two nodes on this machine, for tests: slurm.sh DIR PORT PORT PORT
#
# It needs Debian's slurm-wlm and munge, and no rights. It prints "ready" when jobs can be submitted with
# SLURM_CONF=DIR/slurm.conf, and lasts as long as its standard input is open: also a test that is killed leaves nothing
# behind. A daemon that is killed is started again; DIR/slurmd-n1.pid, DIR/slurmd-n2.pid and DIR/slurmctld.pid say which
# processes they are.
set -uo pipefail
dir=$1 controller=$2 ports=("$3" "$4")
PATH=$PATH:/usr/sbin
user=$(id -un) host=$(hostname -s)

mkdir -p "$dir"/{state,spool-n1,spool-n2}
# munged wants directories that others cannot write to.
chmod 755 "$dir"
(umask 077 && head -c 1024 /dev/urandom >"$dir/munge.key")
cat >"$dir/slurm.conf" <<END
ClusterName=fairlock
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$controller
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$dir/munge.socket
StateSaveLocation=$dir/state
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd-%n.pid
SlurmdSpoolDir=$dir/spool-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
# A node that comes back is used again, and nothing is waited for longer than a test has time.
ReturnToService=2
SlurmdTimeout=10
MessageTimeout=5
KillWait=1
SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=0,batch_sched_delay=0
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=${ports[0]} CPUs=1 RealMemory=4000
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=${ports[1]} CPUs=1 RealMemory=4000
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE
END
export SLURM_CONF=$dir/slurm.conf

# Runs a daemon, again and again until the end.
keep() {
    until [ -e "$dir/ending" ]; do
        "$@"
        sleep 0.2
    done >>"$dir/$1.log" 2>&1
}
keep munged --foreground --key-file="$dir/munge.key" --socket="$dir/munge.socket" --pid-file="$dir/munged.pid" \
    --log-file="$dir/munged.log" --seed-file="$dir/munge.seed" &
for _ in {1..100}; do
    [ -S "$dir/munge.socket" ] && break
    sleep 0.1
done
keep slurmctld -D &
keep slurmd -D -N n1 &
keep slurmd -D -N n2 &

end() {
    touch "$dir/ending"
    # A node's daemon that ends leaves its jobs running.
    scancel --quiet --user="$user"
    for _ in {1..100}; do
        [ -n "$(squeue --noheader)" ] || break
        sleep 0.1
    done
    for daemon in slurmd-n1 slurmd-n2 slurmctld munged; do
        kill "$(cat "$dir/$daemon.pid")"
    done
    wait
} 2>>"$dir/end.log"
trap end EXIT

for _ in {1..300}; do
    if [ "$(sinfo --noheader --states=idle --Format=nodes:1 2>>"$dir/wait.log")" = 2 ]; then
        echo ready
        cat >/dev/null
        exit
    fi
    sleep 0.1
done
echo "the nodes do not come up: $(cat "$dir"/*.log)"
exit 1
