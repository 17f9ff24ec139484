#!/bin/bash
# Saves the automatic checkpoint of a run that has ended, for those who start and
# watch their agents themselves. README.md tells what callers may rely on.
set -euo pipefail

usage() {
	cat <<'END'
usage: save-after-run.sh [--store DIR] --thread T --run R [--conversation FILE]
                         [--artifacts DIR] WORKSPACE STATUS [-- FLAG OF SAVE...]

STATUS is the run's exit code, or the name of the signal that ended it. After 0,
WORKSPACE is saved to thread T as checkpoint-R, with the conversation and every
file below the artifacts' DIR; stdout: the id. A failed run saves nothing, and its
STATUS is the exit code; otherwise that is snapfs save's.
END
}

say() { printf 'save-after-run: %s\n' "$*" >&2; }
fail() {
	local code=$1
	shift
	say "$@"
	exit "$code"
}
wrong() {
	say "$@"
	usage >&2
	exit 2
}

thread=${SNAPFS_THREAD:-} run='' conversation='' artifacts='' arguments=() flags=()
while [ $# -gt 0 ]; do
	case $1 in
	-h | --help)
		usage
		exit
		;;
	--thread | --run | --conversation | --artifacts | --store)
		[ $# -ge 2 ] || wrong "$1 needs a value"
		set -- "$1=$2" "${@:3}"
		continue
		;;
	--thread=?*) thread=${1#*=} ;;
	--run=?*) run=${1#*=} ;;
	--conversation=?*) conversation=${1#*=} ;;
	--artifacts=?*) artifacts=${1#*=} ;;
	--store=?*) export SNAPFS_STORE=${1#*=} ;;
	--)
		shift
		flags=("$@")
		break
		;;
	-?*) wrong "unknown flag, or one without its value: ${1@Q}; flags of snapfs save stand at the end, behind --" ;;
	*) arguments+=("$1") ;;
	esac
	shift
done
[ ${#arguments[@]} = 2 ] || wrong "want WORKSPACE and STATUS, got ${#arguments[@]} arguments"
workspace=${arguments[0]} status=${arguments[1]}
[ -n "$workspace" ] || wrong "WORKSPACE is empty"
[ -n "$thread" ] || wrong "no --thread: a run belongs to one"
[ -n "$run" ] || wrong "no --run: the checkpoint is named after it"

# A signal's name is what systemd has in EXIT_STATUS.
if [[ $status =~ ^[A-Z][A-Z0-9+-]*$ ]]; then
	number=$(kill -l "$status" 2>/dev/null) || wrong "STATUS ${status@Q} is no signal"
	ended="was ended by $status" status=$((128 + number))
elif [[ $status =~ ^(0|[1-9][0-9]{0,2})$ ]] && [ "$status" -le 255 ]; then
	ended="failed with exit code $status"
else
	wrong "STATUS ${status@Q} is no exit code"
fi
[ "$status" = 0 ] || fail "$status" "run ${run@Q} $ended: nothing is saved"
type -P snapfs >/dev/null || fail 1 "no snapfs command in PATH: nothing is saved"

if [ -n "$conversation" ]; then
	if [ "$conversation" != - ] && { [ ! -r "$conversation" ] || [ -d "$conversation" ]; }; then
		fail 1 "the conversation ${conversation@Q} cannot be read: nothing is saved"
	fi
	flags+=("--conversation=$conversation")
fi

if [ -n "$artifacts" ]; then
	[[ $artifacts == /* ]] || artifacts=$PWD/$artifacts
	# What is found: the letter of its kind, then its name.
	exec {found}< <(find "$artifacts/" -mindepth 1 ! -type d -printf '%y%P\0' | LC_ALL=C sort -z)
	walk=$!
	mapfile -d '' -u "$found" entries
	exec {found}<&-
	wait "$walk" || fail 1 "the artifacts in ${artifacts@Q} cannot be read: nothing is saved"
	passed=0
	for entry in ${entries[@]+"${entries[@]}"}; do
		name=${entry#?}
		if [[ $entry != f* ]]; then
			passed=$((passed + 1))
			continue
		fi
		# In NAME=FILE;type=MEDIA nothing can be quoted: the first = ends the name, the
		# last ;type= the file. An empty MEDIA is found out.
		[[ $name != *=* ]] || fail 2 "no artifact can have a = in its name: ${name@Q} in ${artifacts@Q}: nothing is saved"
		file=$artifacts/$name
		[[ $file != *';type='* ]] || file+=';type='
		flags+=("--artifact=$name=$file")
	done
	[ "$passed" = 0 ] || say "no artifacts: $passed symlinks or special files in ${artifacts@Q}"
fi

# A save makes a store that is missing. One that is away, a disk that is not mounted
# for example, must not come into being elsewhere.
snapfs list --json --limit 1 </dev/null >/dev/null || fail $? "the store cannot be read: nothing is saved"

# Behind a "=" no value is taken for a flag.
exec snapfs save ${flags[@]+"${flags[@]}"} "--thread=$thread" "--run=$run" -- "$workspace"
