#!/bin/bash
# Pretended hosts on one machine: network namespaces with host names of their own, joined by veth to a bridge in a further
# namespace. The machine's own network is not changed. Needs root, iproute2 and util-linux.
#
#   hosts.sh up N             makes pyhost0 ... with the addresses 10.77.0.1 ...
#   hosts.sh enter I COMMAND  runs a command on host I
#   hosts.sh bytes I          prints how many bytes host I has received over its network
#   hosts.sh link I up|down   switches the network of host I
#   hosts.sh down             removes all of them
set -eu
names=/run/pyhosts
case $1 in
up)
    mkdir -p $names
    ip netns add pyhost-bridge
    ip -n pyhost-bridge link add bridge0 type bridge
    ip -n pyhost-bridge link set bridge0 up
    for ((i = 0; i < $2; i++)); do
        ip netns add pyhost$i
        ip -n pyhost$i link set lo up
        ip -n pyhost$i link add eth0 type veth peer name port$i netns pyhost-bridge
        ip -n pyhost$i address add 10.77.0.$((1 + i))/24 dev eth0
        ip -n pyhost$i link set eth0 up
        ip -n pyhost-bridge link set port$i master bridge0 up
        touch $names/$i
        unshare --uts=$names/$i hostname pyhost$i
    done ;;
enter)
    i=$2
    shift 2
    exec nsenter --net=/run/netns/pyhost$i --uts=$names/$i -- "$@" ;;
bytes) ip netns exec pyhost$2 cat /sys/class/net/eth0/statistics/rx_bytes ;;
link) ip -n pyhost$2 link set eth0 $3 ;;
down)
    for name in $names/*; do
        if [ -e "$name" ]; then umount "$name" || true; rm "$name"; fi
    done
    rm -rf $names
    for host in $(ip netns list | awk '$1 ~ /^pyhost/ {print $1}'); do ip netns delete $host; done ;;
esac
