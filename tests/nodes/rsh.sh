#!/bin/bash
# rsh.sh [options] HOST COMMAND...: what a launcher runs instead of ssh to start a command on a host of hosts.sh.
while [[ $1 == -* ]]; do shift; done
host=$1
shift
case $host in
pyhost*) number=${host#pyhost} ;;
10.77.0.*) number=$((${host##*.} - 1)) ;;
*) echo "rsh.sh: no host $host" >&2; exit 1 ;;
esac
exec "$(dirname "$(readlink -f "$0")")/hosts.sh" enter "$number" bash -c "$*"
