#!/bin/bash
# Runs every fuzz target of the module, one after the other, each for FUZZTIME.
set -euo pipefail
cd "$(dirname "$0")/.."

# go test -list prints a package's targets and then a line with its path.
list=$(go test -list '^Fuzz' ./...)
while read -r package target; do
	echo "+ $target in $package, ${FUZZTIME:=10s}"
	go test -run '^$' -fuzz "^$target\$" -fuzztime "$FUZZTIME" -fuzzminimizetime 2s "$package"
done < <(awk '/^Fuzz/ { targets[n++] = $1 } /^ok/ { for (i = 0; i < n; i++) print $2, targets[i]; n = 0 }' <<<"$list")
