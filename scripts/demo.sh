#!/bin/bash
# A tour of snapfs: versions and forks of a real workspace, side by side as
# directories; one is restored, one deleted.
# It works in a directory of its own, with a store of its own, and leaves nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
	echo "demo: $*" >&2
	exit 1
}

# say prints what comes next; show prints a command, quoted where it must be; run
# runs it too.
say() { printf '\n# %s\n' "$*"; }
show() {
	local word line=+
	for word; do
		[[ $word =~ ^[a-zA-Z0-9_./@=:+-]+$ ]] || word="'$word'"
		line+=" $word"
	done
	echo "$line"
}
run() {
	show "$@"
	"$@"
}

# differs is for the two programs that answer 1 for "they differ".
differs() {
	show "$@"
	local code=0
	"$@" || code=$?
	[ "$code" = 1 ] || fail "exit code $code where 1 was expected: the versions differ"
}

# packs counts the bytes of everything that is stored.
packs() { find "$dir/store/packs" -type f -printf '%s\n' | awk '{ n += $1 } END { printf "%d\n", n }'; }

scripts/setup.sh rsync diff fusermount3
type -P go >/dev/null || fail "no go command: the workspace is a copy of its own source"
[ -x bin/snapfs ] || go build -o bin/snapfs ./cmd/snapfs
[ -e /dev/fuse ] || fail "no /dev/fuse: load the kernel's fuse module, or pass the device into the container"
if [ "$(id -u)" != 0 ]; then
	type -P fusermount3 >/dev/null || fail "no fusermount3, which ordinary users mount with: apt-get install fuse3"
	{ true <>/dev/fuse; } 2>/dev/null || fail "/dev/fuse is not open to this user: chmod 666 /dev/fuse"
fi

dir=$(mktemp -d "${TMPDIR:-/tmp}/snapfs-demo.XXXXXX")
cleanup() {
	local code=$?
	trap - EXIT INT TERM
	cd /
	if mountpoint -q "$dir/mnt" 2>/dev/null; then
		snapfs umount --lazy "$dir/mnt" || true
	fi
	# The daemon has given the store free when another process can open it.
	[ ! -d "$dir/store" ] || timeout 20 snapfs stats >/dev/null || true
	chmod -R u+w "$dir" 2>/dev/null || true
	rm -rf --one-file-system "$dir"
	exit "$code"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

PATH=$PWD/bin:$PATH
for name in $(compgen -e SNAPFS_); do unset "$name"; done
export SNAPFS_STORE=$dir/store

source=$(go env GOROOT)/src/cmd/go
cd "$dir"
mkdir mnt
cp -R "$source" work
chmod -R u+w work

say "An agent has finished: save its workspace."
run snapfs save --thread task --name first work

say "It works on, and the result is saved too."
run sed -i 's/^package main$/package main \/\/ edited/' work/main.go
run mv work/alldocs.go work/docs.go
run rm -r work/testdata/script/version.txt
run mkdir -p work/notes
run cp work/main.go work/notes/copy.go
run chmod 600 work/go_test.go
run snapfs save --thread task work
run snapfs rename task@latest second
run snapfs list task

say "Every checkpoint is a directory."
run snapfs mount mnt
run ls -l mnt/threads/task
run ls mnt/threads/task/latest/files
differs diff -r mnt/threads/task/by-name/first/files mnt/threads/task/by-name/second/files
say "The same without a mount, and with what diff does not see."
differs snapfs diff task@first task@second

say "Go on from the first version twice, each time in a thread of its own; a fork costs one small record."
run snapfs fork task@first idea-a
run snapfs fork task@first idea-b
run snapfs diff task@first idea-a@latest
run diff -r mnt/threads/task/by-name/first/files mnt/threads/idea-b/latest/files
for idea in a b; do
	run snapfs restore --quiet "idea-$idea@latest" "work-$idea"
done
run sed -i 's/^package main$/package main \/\/ idea a/' work-a/main.go
run cp work/docs.go work-b/b.go
# What no other checkpoint has, and nothing makes smaller.
head -c 4M /dev/urandom >work-b/result.bin
for idea in a b; do
	run snapfs save --quiet --thread "idea-$idea" --name tried "work-$idea"
done
say "The two ideas against each other, as directories and without a mount."
differs diff -rq mnt/threads/idea-a/by-name/tried/files mnt/threads/idea-b/by-name/tried/files
differs snapfs diff idea-a@tried idea-b@tried

say "Restore the latest version, and prove it equal: content, modes, times, links."
run snapfs restore task@latest restored
if type -P rsync >/dev/null; then
	show rsync -aHc --itemize-changes --dry-run --delete work/ restored/
	changes=$(rsync -aHc --itemize-changes --dry-run --delete work/ restored/)
else
	run diff -r --no-dereference work restored
	listing() { (cd "$1" && find . -printf '%p %y %m %T@ %l\n' | sort); }
	printf '+ diff of the two listings: path, kind, mode, time, link target\n'
	changes=$(diff <(listing work) <(listing restored)) || true
fi
[ -z "$changes" ] || fail "the restored tree differs: $changes"
echo "equal: $(find restored | wc -l) entries"

say "Delete the second idea: its thread is back at the fork, and gc frees what only it had."
before=$(packs)
run snapfs delete idea-b@tried
run ls mnt/threads/idea-b
run snapfs diff task@first idea-b@latest
run snapfs gc
after=$(packs)
[ $((before - after)) -ge 4000000 ] || fail "gc left $after of $before bytes in the store"
echo "the store: $before bytes before, $after now"

say "Every byte in the store is what its name says."
run snapfs verify --data
run snapfs umount mnt
run snapfs stats
say "Done in $SECONDS s."
