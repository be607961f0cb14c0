#!/usr/bin/env bash
# Run one part of the tests, with its output in a file: one line at the start, one with the result, and the slowest tests
# where pytest is told to list them.
# tests/part.sh NAME MINUTES command ...
set -uo pipefail
name=$1 minutes=$2 log=build/tests/$1.log
shift 2
mkdir -p build/tests
echo "$name: about $minutes min on 2 cores; tail -f $log"
"$@" > "$log" 2>&1
status=$?
result=$(grep -E '^(=+ )?([0-9]+ (passed|failed|skipped|errors?|deselected|warnings?)[, ]+)+.*in [0-9.]+s' "$log" | tail -1 | tr -d '=')
if [ $status -ne 0 ]; then
    cat "$log"
    echo "$name: FAILED with status $status: ${result:-no test result}; the output is above and in $log"
    exit $status
fi
echo "$name: ${result:-no test result}"
sed -nE 's/^ *([0-9.]+s (call|setup|teardown) )/    \1/p' "$log"
