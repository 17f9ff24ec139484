package snapshot

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/secrets"
)

// An ownArchive is what an archive of ours says besides its files. Nothing of it is
// trusted: all that the record names has to be in the archive, with the hashes that the
// record has for it.
type ownArchive struct {
	recordHash cas.Hash     // as the archive's mark has it
	rec        index.Record // as in the archive; no ID: it has not come yet
	seen       map[string]bool
	artifacts  []index.Artifact
	names      map[string]int // of artifacts, in the archive
	left       []capture.Omission
	secrets    []FoundSecrets

	inFiles map[string][]secrets.Range // what the list has of files that did not come, by path
	marked  uint64                     // files of the tree with overwritten secrets
	listed  uint64                     // of these, those that the list has
}

// newOwnArchive begins an archive with this global header; nil: it is none of ours.
func newOwnArchive(hdr *tar.Header) (*ownArchive, error) {
	mark, ok := strings.CutPrefix(hdr.PAXRecords[paxComment], archiveMark)
	if !ok && hdr.Name != archiveHeader {
		return nil, nil
	}
	version, sum, _ := strings.Cut(mark, " ")
	if ok && version != archiveVersion {
		err := fmt.Errorf("an archive of version %s, this snapfs reads %s: %w", quoted(shortened(version)), archiveVersion, ErrBadArchive)
		return nil, WithHint(err, "import it with the snapfs that made it, or a newer one")
	}
	hash, err := cas.ParseHash(sum)
	if err != nil || !ok {
		return nil, altered("its mark %s", quoted(shortened(hdr.PAXRecords[paxComment])))
	}
	return &ownArchive{recordHash: hash, seen: map[string]bool{}}, nil
}

// altered says that an archive of ours is not as it was made.
func altered(format string, args ...any) error {
	err := fmt.Errorf("%s: it was damaged or altered: %w", fmt.Sprintf(format, args...), ErrBadArchive)
	return WithHint(err, "export it again; or unpack it with tar and snapfs save its folder files")
}

// member takes an entry of an archive of ours. in says that it is below the workspace, at
// a path in there.
func (i *importer) member(hdr *tar.Header, name string) (path string, in bool, err error) {
	own := i.own
	top, rest, below := strings.Cut(name, "/")
	switch {
	case top == filesFolder:
		if own.rec.ID == "" {
			return "", false, altered("%s comes before the record", quoted(name))
		}
		return rest, true, nil
	case hdr.Typeflag == tar.TypeDir && (top == recordFolder || top == artifactsFolder) && !below:
		return "", false, nil
	case hdr.Typeflag != tar.TypeReg:
		return "", false, altered("%s is no file", quoted(name))
	case own.seen[name]:
		return "", false, altered("%s is there twice", quoted(name))
	case name != recordName && own.rec.ID == "":
		return "", false, altered("%s comes before the record", quoted(name))
	}
	own.seen[name] = true
	switch {
	case name == recordName:
		return "", false, i.readRecord(hdr)
	case name == checkpointName: // for people
		_, err := io.Copy(io.Discard, i.packing.tar)
		return "", false, i.contentError(hdr.Name, err)
	case name == conversationName:
		return "", false, i.readConversation(hdr)
	case top == artifactsFolder:
		return "", false, i.readArtifact(hdr, rest)
	}
	for _, p := range recordParts {
		if p.name == name {
			return "", false, i.readPart(hdr, p.name, *p.blob(&own.rec), p.most)
		}
	}
	return "", false, altered("%s does not belong there", quoted(name))
}

// readRecord reads the record.
func (i *importer) readRecord(hdr *tar.Header) error {
	data, err := i.text(hdr, index.MaxRecord)
	if err != nil {
		return err
	}
	if cas.NewObject(cas.Records, cas.Data, data).Key.Hash != i.own.recordHash {
		return altered("its record is not the one that its mark names")
	}
	if i.own.rec, err = index.DecodeRecord(data); err != nil {
		return altered("its record: %v", err)
	}
	return nil
}

// text reads an entry that fits in memory.
func (i *importer) text(hdr *tar.Header, most int64) ([]byte, error) {
	if hdr.Size > most {
		return nil, altered("%s has %d bytes, at most %d can be", quoted(hdr.Name), hdr.Size, most)
	}
	if err := i.grow(hdr); err != nil {
		return nil, err
	}
	var data bytes.Buffer
	_, err := io.Copy(&data, i.packing.tar)
	return data.Bytes(), i.contentError(hdr.Name, err)
}

// readPart reads a list or a text that the record names.
func (i *importer) readPart(hdr *tar.Header, part string, want index.Blob, most int64) error {
	data, err := i.text(hdr, most)
	if err != nil {
		return err
	}
	blob, err := putSmall(i.ctx, i.w, data)
	if err != nil {
		return err
	}
	if blob != want {
		return altered("%s is not what the record names", quoted(hdr.Name))
	}
	if err := i.own.decode(part, data); err != nil {
		return altered("%s: %v", quoted(hdr.Name), err)
	}
	return nil
}

// decode reads a list or a text.
func (o *ownArchive) decode(part string, data []byte) (err error) {
	switch part {
	case policyPart:
		_, _, err = readPolicy(data)
	case omissionsPart:
		if o.left, err = decodeOmissions(data); err == nil {
			err = checkOmissions(o.left)
		}
	case secretsPart:
		o.secrets, err = decodeSecrets(data)
		o.inFiles = map[string][]secrets.Range{}
		for _, f := range o.secrets {
			if f.Place == InFile {
				o.inFiles[f.Path] = f.Redacted
			}
		}
	case artifactsPart:
		o.artifacts, err = decodeArtifacts(data)
		o.names = map[string]int{}
		for n, name := range ArtifactNames(newArtifacts(o.artifacts)) {
			o.names[name] = n
		}
	}
	return err
}

// readConversation stores the messages.
func (i *importer) readConversation(hdr *tar.Header) error {
	if hdr.Size > MaxConversation {
		return altered("%s has %d bytes, at most %d can be", quoted(hdr.Name), hdr.Size, int64(MaxConversation))
	}
	read := &checkedReader{r: i.packing.tar}
	blob, err := i.blob(hdr, cas.Conversations, read)
	if errors.Is(err, ErrRefused) || err == nil && read.check.End() != nil {
		return altered("%s is not JSON", quoted(hdr.Name))
	}
	if err == nil && blobRef(blob) != i.own.rec.Conversation {
		return altered("%s is not what the record names", quoted(hdr.Name))
	}
	return err
}

// readArtifact stores an artifact's content.
func (i *importer) readArtifact(hdr *tar.Header, name string) error {
	n, ok := i.own.names[name]
	if !ok {
		return altered("artifact %s is not in the record's list", quoted(name))
	}
	blob, err := i.blob(hdr, cas.Artifacts, i.packing.tar)
	if err == nil && blobRef(blob) != i.own.artifacts[n].Blob {
		return altered("artifact %s is not what the record names", quoted(name))
	}
	return err
}

// same tells whether all that the record names was in the archive.
func (o *ownArchive) same(made index.Record) error {
	switch {
	case o.rec.ID == "":
		return altered("it has no record")
	case made.Root != o.rec.Root || made.Totals != o.rec.Totals || made.Links != o.rec.Links:
		return altered("its files are not those of its record")
	}
	missing := ""
	for _, p := range recordParts {
		if !p.blob(&o.rec).IsZero() && !o.seen[p.name] {
			missing = p.name
		}
	}
	if !o.rec.Conversation.IsZero() && !o.seen[conversationName] {
		missing = conversationName
	}
	for _, name := range slices.Sorted(maps.Keys(o.names)) {
		if !o.seen[artifactsFolder+"/"+name] {
			missing = artifactsFolder + "/" + name
		}
	}
	if missing != "" {
		return altered("%s is missing", quoted(missing))
	}
	return o.agree()
}
