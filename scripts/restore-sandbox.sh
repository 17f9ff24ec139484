#!/bin/bash
# Gives a sandbox its files when it starts: the newest checkpoint of its thread,
# into a directory that is new. README.md tells what callers may rely on.
set -euo pipefail

usage() {
	cat <<'END'
usage: restore-sandbox.sh [--store DIR] [--bootstrap CMD] [--owner USER:GROUP]
                          [--hook CMD] THREAD DIR

A DIR with content is a live sandbox and left alone. A missing or empty one gets
the newest checkpoint of THREAD, or starts empty if THREAD has none; one in which
that restore was killed gets the rest of it. What the bootstrap made first, in a
private directory, becomes what the checkpoint has; what checkpoints do not hold,
such as node_modules, stays. Last the hook is run in DIR. Exit code 0: the sandbox
can start.
END
}

say() { printf 'restore-sandbox: %s\n' "$*" >&2; }
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

hook='' bootstrap='' owner_flags=() arguments=()
while [ $# -gt 0 ]; do
	case $1 in
	-h | --help)
		usage
		exit
		;;
	--hook | --bootstrap | --owner | --store)
		[ $# -ge 2 ] || wrong "$1 needs a value"
		set -- "$1=$2" "${@:3}"
		continue
		;;
	--hook=?*) hook=${1#*=} ;;
	--bootstrap=?*) bootstrap=${1#*=} ;;
	--owner=?*) owner_flags=("$1") ;;
	--store=?*) export SNAPFS_STORE=${1#*=} ;;
	--)
		shift
		arguments+=("$@")
		break
		;;
	-?*) wrong "unknown flag, or one without its value: ${1@Q}" ;;
	*) arguments+=("$1") ;;
	esac
	shift
done
[ ${#arguments[@]} = 2 ] || wrong "want THREAD and DIR, got ${#arguments[@]} arguments"
thread=${arguments[0]} dir=${arguments[1]}
if [ -z "$thread" ] || [ -z "$dir" ]; then wrong "THREAD or DIR is empty"; fi
# A thread that cannot be has no checkpoint either, and would never get one.
possible() (
	LC_ALL=C
	if [ ${#thread} -gt 512 ] || [ "$thread" = / ]; then return 1; fi
	LC_ALL=C.UTF-8
	[[ $thread =~ ^.*$ ]]
)
possible 2>/dev/null || fail 2 "no thread can be called ${thread@Q}: at most 512 bytes of UTF-8, and more than a slash"
type -P snapfs >/dev/null || fail 1 "no snapfs command in PATH"
[[ $dir == /* ]] || dir=$PWD/$dir
while [[ $dir == */ ]]; do dir=${dir%/}; done
[ -n "$dir" ] || wrong "DIR is the root of the file system"
case ${SNAPFS_STORE:-/} in
/* | *://*) ;;
*) SNAPFS_STORE=$PWD/$SNAPFS_STORE ;; # the hook runs elsewhere
esac

# Everything that takes time runs in the background, so that a signal is passed
# on at once. What it came too late to stop has ended when this script does.
stopped=false child='' caught=false rc=0
stop() {
	stopped=true caught=true
	[ -z "$child" ] || kill -TERM -- "$child" 2>/dev/null || true
}
trap stop HUP INT TERM

# finish waits for the child, which is a process or, with a minus, a group of them,
# and sets rc.
finish() {
	! $stopped || stop # the signal came before the child had a number
	while :; do
		caught=false rc=0
		wait "${child#-}" || rc=$?
		$caught || break
	done
	child=''
}

# ask runs snapfs and sets answer to all that it says, and rc.
ask() {
	local out
	exec {out}< <(exec snapfs "$@" 2>&1)
	child=$!
	IFS= read -r -d '' answer <&"$out" || true
	exec {out}<&-
	finish
	! $stopped || fail 130 "interrupted; ${dir@Q} is as it was"
}

# A sandbox that is not ready has this file in it. It is the program's own: snapfs
# does not save such a directory. One that a restore was killed in has something in
# the file, and the same restore goes on there; the hook's is empty, and nothing does.
marker=.snapfs-restoring

# private begins the name of the directory that the bootstrap works in.
private=.snapfs-bootstrap-$(printf %s "$dir" | cksum | cut -d ' ' -f 1)

# filled tells whether DIR has content. What cannot be looked into is an error,
# never empty.
filled() {
	local found
	[ -e "$dir" ] || [ -L "$dir" ] || return 1
	found=$(find "$dir/" -mindepth 1 -maxdepth 1 ! -name lost+found ! -name "$private.*" -printf x -quit) || fail 1 "cannot look into ${dir@Q}"
	[ -n "$found" ]
}

# inside runs a command that changes DIR's own list of entries, also if its saved
# mode forbids that.
inside() {
	local mode='' code=0
	if [ ! -w "$dir" ]; then
		mode=$(stat -Lc %a -- "$dir") && chmod u+w -- "$dir" || return 1
	fi
	"$@" || code=$?
	[ -z "$mode" ] || chmod "$mode" -- "$dir"
	return "$code"
}

# again ends the script: what the unfinished DIR holds must not be used.
again() {
	printf 'hint: remove what is in %s, and start again\n' "${dir@Q}" >&2
	exit "$1"
}

# mark and unmark leave the saved time of a DIR that the hook does not change.
mark() {
	saved=$(stat -Lc %y -- "$dir") || fail 1 "${dir@Q} is gone"
	inside touch -- "$dir/$marker" || fail 1 "cannot mark ${dir@Q} for the time of its hook: do not use it, remove it"
	marked=$(stat -Lc %y -- "$dir")
}
unmark() {
	local now
	now=$(stat -Lc %y -- "$dir") || fail 1 "${dir@Q} is gone"
	inside rm -f -- "$dir/$marker" || fail 1 "cannot take the mark off ${dir@Q}"
	[ "$now" != "$marked" ] || touch -d "$saved" -- "$dir" 2>/dev/null || true
}

# run runs a command of the caller's in a directory, in a process group of its own, to
# stop what it started as well, and sets rc.
run() {
	set -m
	(
		cd -- "$1"
		SNAPFS_THREAD=$thread exec sh -c "$2"
	) </dev/null &
	child=-$!
	set +m
	finish
}

# The bootstrap's directory: beside DIR, or in DIR when that is a mountpoint. It is
# locked by whoever uses it, and the work lies in it; one that nobody has locked is of
# somebody who was killed.
work='' work_lock=''
made='' # what that directory is, so that nothing else is taken for it

# mounted tells whether something is mounted at a path or below it. What is mounted is
# somebody's, and nothing that removes a directory may go there.
mounted() {
	local point
	while read -r _ _ _ _ point _; do
		point=$(printf '%b.' "$point")
		point=${point%.}
		[[ $point != "$1" && $point != "$1"/* ]] || return 0
	done </proc/self/mountinfo
	return 1
}

parents=() # directories above DIR that were made for it, innermost first
drop() {
	if [ -n "$work" ] && mounted "$(realpath -- "${work%/*}")"; then
		say "something is mounted in ${work@Q}: unmount it, and remove ${work%/*}"
	elif [ -n "$work" ]; then
		rm -rf -- "${work%/*}" || say "cannot remove ${work@Q}"
	fi
	work=''
	[ ${#parents[@]} = 0 ] || rmdir -- "${parents[@]}" 2>/dev/null || true # only if still empty
}
trap drop EXIT
place() {
	local at=${dir%/*}/ old
	in_place=false
	if [ -d "$dir" ] && { mountpoint -q -- "$dir" || [ -L "$dir" ]; }; then
		in_place=true at=$dir/
	else
		above=${at%/}
		while [ -n "$above" ] && [ ! -e "$above" ]; do
			parents+=("$above") above=${above%/*}
		done
		mkdir -p -- "$at" || fail 1 "cannot make ${at@Q}"
	fi
	for old in "$at$private".*; do
		[ -d "$old" ] && [ ! -L "$old" ] || continue
		exec {work_lock}<"$old" || fail 1 "cannot look at ${old@Q}"
		flock -n "$work_lock" || fail 6 "another bootstrap of ${dir@Q} is under way; ${dir@Q} is as it was"
		! mounted "$(realpath -- "$old")" || fail 1 "something is mounted in ${old@Q}, which a killed bootstrap left: unmount it, and remove that"
		rm -rf -- "$old" || fail 1 "cannot remove ${old@Q}, which a killed bootstrap left"
		exec {work_lock}<&-
	done
	work=$(mktemp -d "$at$private.XXXXXX")/tree && mkdir -- "$work" || fail 1 "cannot make a directory for the bootstrap in ${at@Q}"
	exec {work_lock}<"${work%/*}"
	flock -n "$work_lock" || fail 1 "cannot lock ${work%/*}"
	made=$(stat -c %d:%i -- "$work")
}

# settle brings what the bootstrap's directory holds to DIR, which is marked then if there
# is a hook.
settle() {
	local mode
	if ! $in_place; then
		if [ -d "$dir" ] && [ ${#owner_flags[@]} = 0 ]; then
			chown --reference="$dir" -- "$work" || return 1
		fi
		if [ -d "$dir" ] && [ -z "$own" ]; then
			chmod --reference="$dir" -- "$work" || return 1
		elif [ -z "$own" ]; then
			chmod "$(printf %o $((0777 & ~$(umask))))" -- "$work" || return 1
		fi
		if [ -n "$hook" ]; then # the mark comes with the content
			saved=$(stat -c %y -- "$work")
			mode=$(stat -c %a -- "$work")
			chmod u+w -- "$work" && touch -- "$work/$marker" && chmod "$mode" -- "$work" || return 1
		fi
		# An empty directory gives way to another one, by rename(2).
		mv -T -- "$work" "$dir" || return 1
		marked=$(stat -Lc %y -- "$dir")
		drop
		return
	fi
	mark
	[ -z "$own" ] || saved=$(stat -c %y -- "$work")
	inside find "$work" -mindepth 1 -maxdepth 1 -exec mv -t "$dir/" -- {} + || again 1
	[ -z "$own" ] || chmod --reference="$work" -- "$dir" || again 1
	[ ${#owner_flags[@]} = 0 ] || chown --reference="$work" -- "$dir" || again 1
	inside drop
	marked=$(stat -Lc %y -- "$dir")
	[ -n "$hook" ] || unmark
}

cut=false
if [ -f "$dir/$marker" ] && [ ! -L "$dir/$marker" ] && [ -s "$dir/$marker" ]; then
	cut=true
elif [ -e "$dir/$marker" ] || [ -L "$dir/$marker" ]; then
	say "${dir@Q} is unfinished: its hook did not succeed, or a restore was cut off in it"
	again 6
fi
if ! $cut && filled; then
	say "${dir@Q} has content: a live sandbox, left alone"
	exit 0
fi

# refuse ends the script with what snapfs said and its exit code.
refuse() {
	printf '%s' "$answer" >&2
	fail "$rc" "$1; ${dir@Q} is as it was"
}

# The store by itself: its errors, and the wait for whoever has it, are said at once.
snapfs list --json --limit 1 </dev/null >/dev/null &
child=$!
finish
! $stopped || fail 130 "interrupted; ${dir@Q} is as it was"
[ "$rc" = 0 ] || fail "$rc" "the store cannot be read; ${dir@Q} is as it was"

# Exit code 4 means both that there is no store and that there is no such thread. A
# store that went away just now must not start the sandbox empty.
ask list --json --limit 1 -- "$thread"
case $rc in
0) ;;
4)
	[[ $answer != *'snapfs: no store at '* ]] || refuse "the store cannot be read"
	answer=''
	;;
*) refuse "the checkpoints of thread ${thread@Q} cannot be listed" ;;
esac

# document sets the raw JSON of a checkpoint's thread, from among warnings and lines
# of the log; empty: no checkpoint was printed.
document() {
	local line head='^\{"id":"([^"\\]|\\.)*","thread":("([^"\\]|\\.)*"),'
	owner=''
	while IFS= read -r line; do
		if [[ $line =~ $head ]]; then
			owner=${BASH_REMATCH[2]}
		elif [[ $line == '{'* && $line != '{"time":'* ]]; then
			fail 1 "cannot understand what snapfs says, $line; ${dir@Q} is as it was"
		fi
	done <<<"$answer"
}

document
own=$owner incomplete=false target=$dir
if [ -n "$bootstrap" ]; then
	if $cut; then
		say "${dir@Q} is unfinished: a restore without a bootstrap was cut off in it"
		again 6
	fi
	place
	run "$work" "$bootstrap"
	! $stopped || fail 130 "interrupted; ${dir@Q} is as it was"
	[ "$rc" = 0 ] || fail 1 "the bootstrap failed (exit code $rc): the sandbox cannot start, ${dir@Q} is as it was"
	[ "$(stat -c %F:%d:%i -- "$work")" = "directory:$made" ] || fail 1 "the bootstrap has put something else in the place of its directory: the sandbox cannot start, ${dir@Q} is as it was"
	target=$work
fi
if [ -z "$own" ]; then
	if $cut; then
		say "${dir@Q} is unfinished: a restore was cut off in it, and thread ${thread@Q} has no checkpoint"
		again 6
	fi
	if [ -n "$bootstrap" ]; then
		say "thread ${thread@Q} has no checkpoint yet: ${dir@Q} starts with what the bootstrap made"
	else
		if [ ! -d "$dir" ]; then
			mkdir -p -- "${dir%/*}/" || fail 1 "cannot make ${dir@Q}"
			mkdir -- "$dir" || fail 1 "cannot make ${dir@Q}"
		fi
		say "thread ${thread@Q} has no checkpoint yet: ${dir@Q} starts empty"
	fi
else
	# An id may be anything, THREAD@latest of another thread's checkpoint too, and
	# an exact id comes first.
	ask show --json -- "$thread@latest"
	[ "$rc" = 0 ] || refuse "the newest checkpoint of thread ${thread@Q} cannot be read"
	document
	[ "$owner" = "$own" ] || fail 6 "${thread@Q}@latest is the id of a checkpoint of thread $owner; ${dir@Q} is as it was"

	# The restore ends with this script, also when that is killed: nobody would run
	# the hook.
	tied=()
	if setpriv --pdeathsig TERM true 2>/dev/null; then tied=(setpriv --pdeathsig TERM); fi
	# The bootstrap's directory is nobody else's: whatever goes there can be made again.
	how=("${owner_flags[@]}")
	[ -z "$bootstrap" ] || how+=(--mirror --force)
	"${tied[@]}" snapfs restore "${how[@]}" -- "$thread@latest" "$target" </dev/null &
	child=$!
	finish
	if $stopped; then
		if [ -n "$hook" ] && [ -z "$bootstrap" ] && filled && [ ! -e "$dir/$marker" ]; then
			mark
			say "interrupted before the hook; ${dir@Q} is unfinished"
			again 130
		fi
		fail 130 "interrupted"
	fi
	case $rc in
	0) ;;
	3) incomplete=true ;; # all contents are there
	*) fail "$rc" "the restore of thread ${thread@Q} failed (exit code $rc): the sandbox cannot start" ;;
	esac
fi

if [ -n "$bootstrap" ]; then
	! $stopped || fail 130 "interrupted; ${dir@Q} is as it was"
	settle || fail 1 "cannot bring what was restored to ${dir@Q}, which is as it was"
fi

if [ -n "$hook" ]; then
	[ -n "$bootstrap" ] || mark
	if $stopped; then
		say "interrupted before the hook; ${dir@Q} is unfinished"
		again 130
	fi
	run "$dir" "$hook"
	if [ "$rc" != 0 ]; then
		say "the hook failed (exit code $rc): the sandbox cannot start, ${dir@Q} is unfinished"
		! $stopped || again 130
		again 1
	fi
	unmark
fi
! $stopped || fail 130 "interrupted; ${dir@Q} is complete"
! $incomplete || exit 3
