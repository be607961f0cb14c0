#!/bin/bash
# Pretended hosts on one machine: namespaces with a network, a host name, /etc/hosts and /dev/shm of their own, joined by veth
# to a bridge in a further namespace. The machine's own network is not changed. Needs root, iproute2 and util-linux.
# PYHOSTS names the set of hosts, so that several sets can exist at a time.
#
#   hosts.sh check                exits with a message if this machine cannot make hosts
#   hosts.sh up N                 makes pyhost0 ... with the addresses 10.77.0.1 ..., prints "up", and removes them with their
#                                 processes when its standard input ends
#   hosts.sh enter I COMMAND      runs a command on host I
#   hosts.sh bytes I              prints how many bytes host I has received over its network
#   hosts.sh processes I          prints the process ids of host I
#   hosts.sh link I up|down       switches the network of host I
set -eu
folder=/run/pyhosts-${PYHOSTS:-0} # the file I has the id of the process that keeps host I
enter() {
    local i=$1
    shift
    nsenter --target "$(< "$folder/$i")" --net --uts --mount --wdns="$PWD" -- "$@"
}
# make I COMMAND [WORD]: a new host, furnished by the command
make() {
    local i=$1
    unshare --net --uts --mount bash -c "${@:2:1}"' && ip link set lo up && exec sleep infinity' "$@" < /dev/null &
    disown
    echo $! > "$folder/$i"
    until [ "$(readlink "/proc/$!/exe")" = "$(readlink -f "$(command -v sleep)")" ]; do sleep 0.01; done
}
processes() {
    local keeper network
    keeper=$(< "$folder/$1")
    network=$(readlink "/proc/$keeper/ns/net")
    find /proc/[0-9]*/ns/net -maxdepth 0 -lname "${network/\[/\\[}" 2> /dev/null | cut -d/ -f3 | grep -vx "$keeper" || true
}
down() {
    local file
    for file in "$folder"/[0-9b]*; do
        processes "${file##*/}" | xargs --no-run-if-empty kill -KILL || true
        kill -KILL "$(< "$file")" || true
    done
    rm -r "$folder"
}
case $1 in
check)
    [ "$(id -u)" = 0 ] && type ip nsenter unshare > /dev/null 2>&1 || { echo "needs root, iproute2 and util-linux" >&2; exit 1; }
    ;;
up)
    mkdir "$folder"
    trap down EXIT
    echo "127.0.0.1 localhost" > "$folder/hosts"
    for ((i = 0; i < $2; i++)); do echo "10.77.0.$((1 + i)) pyhost$i" >> "$folder/hosts"; done
    make bridge "ip link add bridge0 type bridge && ip link set bridge0 up"
    for ((i = 0; i < $2; i++)); do
        make $i 'hostname pyhost$0 && mount -t sysfs none /sys && mount -t tmpfs -o size=512m none /dev/shm && mount --bind $2 /etc/hosts' "$folder/hosts"
        enter $i ip link add eth0 type veth peer name port$i netns "$(< "$folder/bridge")"
        enter $i ip address add 10.77.0.$((1 + i))/24 dev eth0
        enter $i ip link set eth0 up
        enter bridge ip link set port$i master bridge0 up
    done
    echo up
    while read -r _; do :; done ;;
enter) exec nsenter --target "$(< "$folder/$2")" --net --uts --mount --wdns="$PWD" -- "${@:3}" ;;
bytes) enter "$2" awk '/eth0:/ {print $2}' /proc/net/dev ;;
processes) processes "$2" ;;
link) enter "$2" ip link set eth0 "$3" ;;
esac
