package fs_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/snapshot"
)

// project makes a workspace that programs can be run on: a git repository with a
// database, scripts and a program in it.
func project(t *testing.T) string {
	t.Helper()
	files := map[string]string{
		"README.md": "a needle in a haystack\n", ".gitignore": "build/\n", "build/out": "left alone",
		"lib/a.js": "module.exports = require('./b').value + 1\n", "lib/b.js": "exports.value = 41\n", "main.js": "console.log(require('./lib/a'))\n",
		"pkg/__init__.py": "", "pkg/mod.py": "VALUE = 42\n", "pkg/sub/__init__.py": "from pkg.mod import VALUE\n",
		"run.sh": "#!/bin/sh\necho \"it runs in $(basename \"$(pwd)\")\"\n", "empty": "",
	}
	for i := range 300 {
		files[fmt.Sprintf("src/d%d/file %d.txt", i%7, i)] = strings.Repeat(fmt.Sprintln("line", i), 1+i%50)
	}
	ws := write(t, files)
	require.NoError(t, os.Chmod(ws+"/run.sh", 0o755))
	require.NoError(t, os.Symlink("lib/a.js", ws+"/link.js"))
	require.NoError(t, os.Link(ws+"/README.md", ws+"/second name"))
	echo, err := exec.LookPath("echo")
	require.NoError(t, err)
	shell(t, ws, "cp "+echo+" program")
	shell(t, ws, "head -c 3000000 /dev/urandom > large.bin")
	if _, err := exec.LookPath("git"); err == nil {
		shell(t, ws, "git init -q . && git add -A . && git -c user.name=n -c user.email=e@x commit -qm first && git rm -q --cached empty && git -c user.name=n -c user.email=e@x commit -qm second")
	}
	if _, err := exec.LookPath("sqlite3"); err == nil {
		shell(t, ws, `sqlite3 db.sqlite "create table t(x); with recursive c(x) as (select 1 union all select x+1 from c where x<5000) insert into t select x from c"`)
	}
	return ws
}

// shell runs a command in a directory and returns what it printed.
func shell(t *testing.T, dir, command string) string {
	t.Helper()
	cmd := exec.Command("sh", "-c", command)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*", "GIT_OPTIONAL_LOCKS=0")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s\n%s", command, out)
	return string(out)
}

// programs are run in a checkpoint on the mount. They have to print there what they
// print in the workspace; $W is the workspace and $T a directory to write to.
var programs = []struct{ needs, command string }{
	{"git", "git status --porcelain"},
	{"git", "git log --format=%s"},
	{"git", "git fsck --strict"},
	{"git", "git diff HEAD~1 --stat; git show HEAD:README.md; git grep -n needle"},
	{"sqlite3", "sqlite3 'file:db.sqlite?immutable=1' 'select count(*), sum(x) from t; pragma integrity_check'"},
	{"node", "node main.js; node -e 'console.log(require(\"./link.js\"))'"},
	{"python3", "PYTHONPYCACHEPREFIX=$T/cache python3 -m compileall -q pkg && PYTHONDONTWRITEBYTECODE=1 python3 -c 'import pkg.sub; print(pkg.sub.VALUE)'"},
	{"python3", `python3 -c 'import mmap,hashlib; f=open("large.bin","rb"); m=mmap.mmap(f.fileno(),0,prot=mmap.PROT_READ); print(hashlib.sha256(m).hexdigest(), m[2999990:]==open("large.bin","rb").read()[2999990:])'`},
	{"sh", "./program hello"},
	{"sh", "cd src && ../run.sh"},
	{"rsync", "rsync -rlptHc --delete --dry-run --itemize-changes ./ $W/"},
	{"tar", "tar -cf - --sort=name . | tar -tvf - | awk '{print $1, $3, $6, $7, $8, $9, $10}' | sort"},
	{"tar", "tar -cf $T/all.tar . && tar -df $T/all.tar -C $W"},
	{"du", "du -ab --apparent-size . | grep -v '[.]$' | awk '!/directory/' | grep -vE '\t[.]/(src|lib|pkg|build|[.]git)(/[^.]*)?$' | sort"},
	{"find", "find . -samefile README.md | sort; find . -type f -size +100k | sort; find . -newer README.md | sort | head -c 0"},
	{"grep", "grep -rn needle . | sort"},
	{"diff", "diff -r --no-dereference . $W"},
	{"cp", "cp -a . $T/copy && diff -r --no-dereference $T/copy $W && rsync -aHn --delete --itemize-changes $T/copy/ $W/"},
	{"rg", "rg --no-config -uu --sort path needle"},
	{"fdfind", "fdfind --no-ignore --hidden --type f | sort"},
	{"cmp", "cmp large.bin $W/large.bin; cat large.bin | sha256sum; tail -c 1000 large.bin | sha256sum"},
}

// runPrograms compares them; in runs a command in a directory on the mount. What
// they do in the workspace they do in a copy of it: git writes to its index.
func runPrograms(t *testing.T, ws string, in func(t *testing.T, command string) string) {
	reference := filepath.Join(t.TempDir(), "workspace")
	shell(t, ws, "cp -a . "+reference)
	for i, p := range programs {
		t.Run(fmt.Sprint(i, p.needs), func(t *testing.T) {
			if _, err := exec.LookPath(p.needs); err != nil {
				t.Skip("no ", p.needs)
			}
			with := func(side string) string {
				tmp := filepath.Join(t.TempDir(), side)
				require.NoError(t, os.Mkdir(tmp, 0o777))
				require.NoError(t, os.Chmod(tmp, 0o777))
				letIn(t, filepath.Dir(tmp))
				return fmt.Sprintf("umask 022; W=%s; T=%s; ", ws, tmp) + p.command
			}
			dir := reference
			if strings.Contains(p.command, "$W") { // they compare with it, and leave it as it is
				dir = ws
			}
			require.Equal(t, sorted(shell(t, dir, with("workspace"))), sorted(in(t, with("mount"))))
		})
	}
}

// sorted orders lines: what a program lists in the order of the directory.
func sorted(s string) []string {
	lines := strings.Split(s, "\n")
	sort.Strings(lines)
	return lines
}

// TestPrograms runs them as root, or as whoever runs the tests.
func TestPrograms(t *testing.T) {
	ws := project(t)
	d := start(t)
	cp := d.save(snapshot.SaveOptions{Workspace: ws, Thread: "t", Files: policy.FilesOptions{NoDefaults: true}})
	files := dirOf(d.mount(), cp)
	runPrograms(t, ws, func(t *testing.T, command string) string { return shell(t, files, command) })
}

// TestProgramsOfAnOrdinaryUser runs them as a user whose mount it is.
func TestProgramsOfAnOrdinaryUser(t *testing.T) {
	needFuse(t)
	needOtherUsers(t)
	ws := project(t)
	give(t, ws)
	dir := newStore(t)
	s, err := snapshot.Open(t.Context(), dir, snapshot.Options{})
	require.NoError(t, err)
	res, err := s.Save(t.Context(), snapshot.SaveOptions{Workspace: ws, Thread: "t", Files: policy.FilesOptions{NoDefaults: true}})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	d, at := mountAsNobody(t, dir)
	files := dirOf(at, res.Checkpoint)
	runPrograms(t, ws, func(t *testing.T, command string) string {
		env := "HOME=/nonexistent; export HOME LC_ALL=C.UTF-8 GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*' GIT_OPTIONAL_LOCKS=0; "
		out, err := d.as(nobody, "sh", "-c", env+"cd "+files+" && { "+command+"; }")
		require.NoError(t, err, out)
		return out
	})
}
