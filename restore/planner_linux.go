package restore

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/tree"
)

// planner compares a live directory with a checkpoint. It changes nothing.
type planner struct {
	*writer
	opt    Options
	root   *target    // nil: nothing is there
	mount  uint64     // that the target lies on
	ahead  chan *look // what somebody who has time may look at
	counts Result
	metas  int64    // of the replaced, those of which only metadata is
	todo   *planDir // in the live target; nil: nothing
	list   []Change // only if somebody wants it

	resumed bool       // what is there may be an earlier one's of this restore
	made    firstPaths // files with zero bytes in place of secrets: those to be made
	already firstPaths // and those that an earlier one has made

	files    map[[2]uint64]string // by device and inode number: files with several names that stay
	linked   map[int]bool         // groups of hard links that are one file with exactly those names
	inTheWay []Problem
	foreign  []Problem // in the way, and not to be forced
	excluded []Problem
	clashes  CollisionError
}

// maxPlan is how many changes can be listed.
const maxPlan = 1 << 22

// coverage is how far a checkpoint's policy covers what is in a directory.
type coverage struct {
	scope policy.Scope
	none  string // why it covers nothing there; "": it does
}

// plan compares what is in root, which is nil when nothing is there, with the source.
func (w *writer) plan(root *target, src Source, resumed bool, opt Options) (*planner, error) {
	p := &planner{
		writer: w, opt: opt, root: root, resumed: resumed, files: map[[2]uint64]string{},
	}
	if root == nil {
		_, err := p.missingIn("", src.Root, opt.Files.Root())
		return p, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(root.fd, &st); err != nil {
		return nil, fmt.Errorf("look at the target: %w", err)
	}
	p.mount, _ = statusOf(root.fd, "", &st)
	p.linked = p.linkedGroups()
	whole := coverage{}
	if c := opt.Coverage; c != nil && c.Files != nil {
		whole.scope = c.Files.Root()
	}
	e := src.Stat
	e.Hash = src.Root
	stop := p.lookers()
	defer stop()
	var err error
	p.todo, err = p.both(p.newLook(root.fd, "", &e, &st, opt.Files.Root()), opt.Files.Root(), whole, !opt.Files.Restricted())
	return p, err
}

// result is what the plan counts; without one, nothing.
func (p *planner) result() Result {
	if p == nil {
		return Result{}
	}
	res := p.counts
	res.name(&p.made, &p.already)
	return res
}

// refusal is why the plan must not be carried out; nil: it may.
func (p *planner) refusal() error {
	switch {
	case len(p.clashes.Paths) > 0:
		return &p.clashes
	case p.opt.Strict && len(p.excluded) > 0:
		return &PathsError{Err: ErrExcluded, Paths: p.excluded}
	case len(p.foreign) > 0:
		return &PathsError{Err: ErrInTheWay, Paths: p.foreign}
	case p.opt.Force:
	case len(p.inTheWay) > 0:
		return &PathsError{Err: ErrInTheWay, Paths: p.inTheWay}
	case p.counts.Deleted > p.counts.Created+p.counts.Replaced-p.metas:
		return fmt.Errorf("%w: %d deleted, %d written", ErrDeletesMore, p.counts.Deleted, p.counts.Created+p.counts.Replaced-p.metas)
	}
	return nil
}

// note counts a change and returns its place in the list.
func (p *planner) note(op Op, path, why string) int {
	*p.counts.of(op)++
	if p.opt.Plan == nil {
		return -1
	}
	if len(p.list) >= maxPlan {
		p.cancel(fmt.Errorf("a plan of more than %d entries: %w", maxPlan, cas.ErrTooLarge))
		return -1
	}
	p.list = append(p.list, Change{Op: op, Path: shown(strings.Clone(path)), Why: why})
	return len(p.list) - 1
}

// instead makes another change of one that was noted.
func (p *planner) instead(at int, from, to Op, why string) {
	*p.counts.of(from)--
	*p.counts.of(to)++
	if at >= 0 {
		p.list[at].Op, p.list[at].Why = to, why
	}
}

// both plans a directory that the checkpoint has and that is there. keep says that its
// own metadata is to be the saved one.
func (p *planner) both(l *look, do policy.Scope, cover coverage, keep bool) (*planDir, error) {
	if err := context.Cause(p.ctx); err != nil {
		return nil, err
	}
	l.take()
	defer l.leave()
	if l.err != nil {
		return nil, l.err
	}
	for _, paths := range l.clashes {
		p.clashes.add(paths)
	}
	differs := keep && l.differs != ""
	if differs {
		p.metas++
		p.note(Replace, l.path, "its "+l.differs)
	} else if keep && l.path != "" {
		p.note(Keep, l.path, "")
	}
	cover, err := p.narrow(l.path, cover, func(name string) bool {
		return slices.ContainsFunc(l.items, func(it item) bool { return it.name == name })
	})
	if err != nil {
		return nil, err
	}
	d := &planDir{dev: l.st.Dev, ino: l.st.Ino, dirs: map[string]*planDir{}, write: map[string]place{}, meta: map[string]*planMeta{}}
	begin, drop := p.lookAhead(l, do)
	defer drop()
	for i := range l.items {
		it := &l.items[i]
		begin(i)
		if it.saved == nil {
			err = p.extra(l, d, it, do, cover)
		} else {
			err = p.entry(l.dir.fd, d, l.path, it, do, cover)
		}
		if err != nil {
			return nil, err
		}
	}
	if keep && (differs || !d.empty()) {
		saved := clone(l.entry)
		d.entry = &saved
	}
	if d.empty() && d.entry == nil {
		return nil, nil
	}
	if len(d.write)+len(d.remove) > 0 {
		if why := p.untouchable(l.dir.fd, "", l.st); why != "" {
			p.foreign = append(p.foreign, Problem{Path: shown(l.path), Err: errors.New(why)})
		}
	}
	return d, nil
}

// entry plans an entry of the checkpoint.
func (p *planner) entry(fd int, d *planDir, path string, it *item, do policy.Scope, cover coverage) error {
	e := it.saved
	at := path + e.Name
	if it.err != nil {
		return p.at(at, it.err)
	}
	decision, sub := do.Decide(e.Name, e.Kind == tree.Dir)
	if !decision.Keep && !decision.Descend {
		p.skip(at, decision)
		return nil
	}
	if it.st == nil {
		made, err := p.missing(at, e, sub, decision.Keep)
		if made {
			p.makes(d, e, free)
		}
		return err
	}
	if !isKind(it.st, e.Kind) {
		return p.swap(fd, d, at, it, decision.Keep, do, sub, cover)
	}
	switch e.Kind {
	case tree.Dir:
		sd, err := p.both(it.look, sub, p.down(cover, e.Name), decision.Keep)
		if sd != nil {
			d.dirs[strings.Clone(e.Name)] = sd
		}
		return err
	case tree.Symlink:
		buf := make([]byte, len(e.Target)+1)
		n, err := unix.Readlinkat(fd, e.Name, buf)
		if err != nil {
			return p.at(at, err)
		}
		if string(buf[:n]) != e.Target {
			p.replaces(fd, d, at, it, "its target")
			return nil
		}
		p.right(fd, d, at, it, linkDiffers(p.owners, it.st, e))
		return nil
	}
	if it.is == unlike {
		p.replaces(fd, d, at, it, "its content")
		return nil
	}
	p.right(fd, d, at, it, it.meta)
	return nil
}

// replaces plans an entry to be made anew over another file or symlink.
func (p *planner) replaces(fd int, d *planDir, at string, it *item, why string) {
	if no := p.untouchable(fd, it.name, it.st); no != "" {
		p.foreign = append(p.foreign, Problem{Path: strings.Clone(at), Err: errors.New(no)})
	}
	p.lacks(p.note(Replace, at, why), at, it.saved)
	p.makes(d, it.saved, taken)
}

// lacks notes of a file that is to be made, the change i of the list, that it has zero
// bytes in place of secrets, if it has.
func (p *planner) lacks(i int, at string, e *tree.Entry) {
	if e.Flags&tree.Redacted == 0 {
		return
	}
	p.made.add(at)
	if i >= 0 {
		p.list[i].Redacted = true
	}
}

// right plans an entry whose content is the saved one.
func (p *planner) right(fd int, d *planDir, at string, it *item, differs string) {
	e := it.saved
	group, several := p.links.groups[at]
	inode := [2]uint64{it.st.Dev, it.st.Ino}
	other, why := p.files[inode], ""
	switch {
	case several && !p.linked[group]:
		why = "its hard links"
	case several || e.Kind != tree.File || it.st.Nlink < 2:
	case other != "":
		why = "it is " + tree.Quote(other) + ", too"
	case differs != "":
		why = "it has names elsewhere" // where its metadata is not to change
	default:
		p.files[inode] = strings.Clone(at)
	}
	if it.is == alike {
		p.rightButSecrets(d, at, it, differs, why)
		return
	}
	if why == "" && p.resumed && e.Flags&tree.Redacted != 0 {
		p.already.add(at)
	}
	if why == "" { // it is done, but for metadata
		p.meter.Add(1, int64(e.Size))
	}
	switch {
	case why != "":
		p.replaces(fd, d, at, it, why)
	case differs != "":
		p.changes(d, at, it, differs, "its "+differs)
	default:
		p.note(Keep, at, "")
	}
}

// changes plans that the metadata of an entry become the saved one.
func (p *planner) changes(d *planDir, at string, it *item, differs, why string) {
	p.metas++
	p.note(Replace, at, why)
	e := it.saved
	d.meta[strings.Clone(e.Name)] = &planMeta{entry: clone(e), dev: it.st.Dev, ino: it.st.Ino, time: differs == differentTime}
}

// rightButSecrets plans a file that differs only where secrets were: its content stays,
// whatever else there is. It keeps its metadata where other names of it would get another
// one, and that is why another file would be made anew.
func (p *planner) rightButSecrets(d *planDir, at string, it *item, differs, anew string) {
	p.meter.Add(1, int64(it.saved.Size))
	if differs == "" || anew != "" && it.st.Nlink > 1 {
		p.note(Keep, at, onlySecrets)
		return
	}
	p.changes(d, at, it, differs, "its "+differs+"; its content "+onlySecrets)
}

// makes notes that an entry is to be made anew.
func (p *planner) makes(d *planDir, e *tree.Entry, where place) {
	d.write[strings.Clone(e.Name)] = where
}

// linkedGroups finds the groups of hard links that are in the target already: all members
// that are asked for are one file, which has no names but those of the group.
func (p *planner) linkedGroups() map[int]bool {
	names, inodes, broken := map[int]uint64{}, map[int]unix.Stat_t{}, map[int]bool{}
	look := func(at string, group int, chosen bool) {
		var st unix.Stat_t
		dir, err := p.root.openBelow(path.Dir(at))
		if err == nil {
			err = unix.Fstatat(dir, path.Base(at), &st, unix.AT_SYMLINK_NOFOLLOW)
			_ = unix.Close(dir)
		}
		first, some := inodes[group]
		switch {
		case err == nil && (!some && chosen || some && first.Dev == st.Dev && first.Ino == st.Ino):
			inodes[group] = st
			names[group]++
		case chosen:
			broken[group] = true
		}
	}
	for _, chosen := range []bool{true, false} { // what is not asked for may be a name, too
		for at, group := range p.links.groups {
			if p.opt.Files.Decide(at, false).Keep == chosen {
				look(at, group, chosen)
			}
		}
	}
	whole := map[int]bool{}
	for group, st := range inodes {
		whole[group] = !broken[group] && uint64(st.Nlink) == names[group]
	}
	return whole
}

func clone(e *tree.Entry) tree.Entry {
	c := *e
	c.Name, c.Target = strings.Clone(e.Name), strings.Clone(e.Target)
	return c
}

// linkDiffers says what metadata of a symlink is not the saved one.
func linkDiffers(o owners, st *unix.Stat_t, e *tree.Entry) string {
	var differs []string
	if st.Mtim.Sec != e.MtimeSec || st.Mtim.Nsec != int64(e.MtimeNsec) {
		differs = append(differs, differentTime)
	}
	if o.differs(st, e) {
		differs = append(differs, "owner")
	}
	return strings.Join(differs, ", ")
}

// skip notes an entry that the restore's policy leaves out, if a rule says so.
func (p *planner) skip(at string, d policy.Decision) {
	if d.Rule.Pattern == "" {
		return
	}
	why := excludedBy(d.Rule)
	p.note(Skip, at, why)
	if p.opt.Strict {
		p.excluded = append(p.excluded, Problem{Path: strings.Clone(at), Err: errors.New(why)})
	}
}

func excludedBy(r policy.Rule) string { return "excluded by " + r.Pattern + " (" + r.Source + ")" }

// missing plans an entry that is not there: it and all that the policy chooses below it
// are to be made. made says whether there is anything.
func (p *planner) missing(at string, e *tree.Entry, do policy.Scope, keep bool) (made bool, err error) {
	place := len(p.list)
	if keep {
		p.lacks(p.note(Create, at, ""), at, e)
	}
	if e.Kind != tree.Dir {
		return keep, nil
	}
	some, err := p.missingIn(at+"/", e.Hash, do)
	if err != nil || !some || keep {
		return keep, err
	}
	// It is only on the way to what was asked for.
	p.counts.Created++
	if p.opt.Plan != nil {
		p.list = slices.Insert(p.list, place, Change{Op: Create, Path: strings.Clone(at)})
	}
	return true, nil
}

// missingIn is missing for all that is in a directory.
func (p *planner) missingIn(path string, hash cas.Hash, do policy.Scope) (made bool, err error) {
	if err := context.Cause(p.ctx); err != nil {
		return false, err
	}
	d, err := p.reader.Open(p.ctx, hash)
	if err != nil {
		return false, p.at(path, err)
	}
	for e, err := range d.Entries(p.ctx, 0) {
		if err != nil {
			return false, p.at(path, err)
		}
		at := path + e.Name
		if len(at) > tree.MaxPath {
			return false, corrupt("%s: a path of %d bytes", tree.Quote(at), len(at))
		}
		decision, sub := do.Decide(e.Name, e.Kind == tree.Dir)
		if !decision.Keep && !decision.Descend {
			p.skip(at, decision)
			continue
		}
		some, err := p.missing(at, &e, sub, decision.Keep)
		if err != nil {
			return false, err
		}
		made = made || some
	}
	return made, nil
}
