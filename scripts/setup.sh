#!/bin/bash
# Installs what the tests and the demo use beside Go, where it can: as root, with
# apt-get. Elsewhere it says what is missing; what needs it is skipped or says so
# itself. With arguments it looks for these commands only.
set -euo pipefail

# command:packages
wanted=(
	make:make
	gcc:gcc,libc6-dev # the race detector
	git:git
	rsync:rsync
	diff:diffutils
	patch:patch
	getfattr:attr
	getfacl:acl
	fusermount3:fuse3
	mkfs.ext4:e2fsprogs
	mkfs.exfat:exfatprogs
	mount.exfat-fuse:exfat-fuse # names that fold, where the kernel has no vfat
	sqlite3:sqlite3
	python3:python3
	node:nodejs
	rg:ripgrep
	fdfind:fd-find
	script:bsdutils # a terminal
)

# only when asked for
extra=(restic:restic borg:borgbackup,python3-pyfuse3)
if [ $# -gt 0 ]; then
	wanted+=("${extra[@]}")
fi

packages=()
lacking=()
for pair in "${wanted[@]}"; do
	command=${pair%%:*}
	if [ $# -gt 0 ] && [[ " $* " != *" $command "* ]]; then
		continue
	fi
	if ! type -P "$command" >/dev/null; then
		lacking+=("$command")
		IFS=, read -ra names <<<"${pair#*:}"
		packages+=("${names[@]}")
	fi
done

if [ ${#packages[@]} -gt 0 ]; then
	if [ "$(id -u)" = 0 ] && type -P apt-get >/dev/null; then
		echo "installing ${packages[*]}"
		DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${packages[@]}" >/dev/null ||
			echo "setup: could not install ${packages[*]}: try apt-get update" >&2
	else
		echo "setup: not installed: ${lacking[*]}; on Debian or Ubuntu: sudo apt-get install ${packages[*]}" >&2
	fi
fi

if ! [ -e /dev/fuse ]; then
	echo "setup: no /dev/fuse: nothing can be mounted (modprobe fuse, or pass the device into the container)" >&2
fi
