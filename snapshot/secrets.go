package snapshot

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/secrets"
)

// SecretsOptions say which secrets stay out of a checkpoint, beside what
// [policy.Settings] does.
type SecretsOptions struct {
	// Declared are values that are overwritten: with zero bytes in files and artifacts,
	// with stars in the conversation, the message and the values of labels. What cannot
	// be overwritten is left out, or refused.
	Declared *secrets.Set
	// Sources say where they were declared, for the record: "variable TOKEN".
	Sources []string
	// Allowed are the rules for what looks like a secret and is none.
	Allowed []policy.AllowRule
}

// screen compiles what a capture needs.
func (o SecretsOptions) screen(mode policy.SecretsMode) (capture.Screen, error) {
	allowed, err := policy.CompileAllowed(o.Allowed)
	if mode == "" {
		mode = policy.SecretsWarn
	}
	return capture.Screen{Declared: o.Declared, Mode: mode, Allowed: allowed}, err
}

// refuse fails if a declared secret stands in one of some texts that cannot be
// overwritten: pairs of what a text is, and the text.
func refuse(declared *secrets.Set, pairs ...string) error {
	for pair := range slices.Chunk(pairs, 2) {
		if declared.Holds(pair[1]) {
			err := fmt.Errorf("the %s has a declared secret: %w", pair[0], ErrRefused)
			return WithHint(err, "choose another %s: this one is shown to everybody who sees the checkpoint", pair[0])
		}
	}
	return nil
}

// secretsFound gathers what a save finds outside of the workspace's files.
type secretsFound struct {
	screen capture.Screen
	list   []FoundSecrets
	left   []capture.Omission
}

// text returns a text as it is to be stored.
func (f *secretsFound) text(field, text string) string {
	if found := f.screen.Declared.Find([]byte(text)); len(found) > 0 {
		f.list = append(f.list, FoundSecrets{Place: InRecord, Path: field, Report: secrets.Report{Redacted: found}})
	}
	return f.screen.Declared.Mask(text)
}

// labels returns labels as they are to be stored.
func (f *secretsFound) labels(labels map[string]string) map[string]string {
	stored := map[string]string{}
	for key, value := range labels {
		stored[key] = f.text("label "+key, value)
	}
	return stored
}

// content takes what was found in an artifact or in the conversation, and the error of
// reading it. It reports whether that is to be left out for it.
func (f *secretsFound) content(place SecretPlace, name string, report secrets.Report, err error) (left bool) {
	why := capture.LeftOut(err)
	if why != "" {
		what := place.String()
		if name != "" {
			what += " " + quoted(name)
		}
		f.left = append(f.left, capture.Omission{Path: ".", Why: what + ": " + why})
		report.Redacted = nil
	}
	path := name
	if place == InConversation {
		path = conversationName
	}
	if report = f.screen.Told(path, report); !report.Empty() {
		f.list = append(f.list, FoundSecrets{Place: place, Path: name, Report: report})
	}
	return why != ""
}

// conversationName is the conversation's name on a mount, and where rules allow what
// looks like a secret.
const conversationName = "conversation.json"

// conversation stores a conversation without declared secrets, piece by piece; the zero blob: it is
// left out for what looks like a secret.
func (f *secretsFound) conversation(ctx context.Context, w cas.Writer, c *Conversation) (index.Blob, error) {
	blob, err := f.putConversation(ctx, w, c)
	if err != nil {
		return index.Blob{}, fmt.Errorf("conversation: %w", err)
	}
	return blob, nil
}

func (f *secretsFound) putConversation(ctx context.Context, w cas.Writer, c *Conversation) (index.Blob, error) {
	in, err := c.again()
	if err != nil {
		return index.Blob{}, err
	}
	read := &checkedReader{r: in, check: secrets.JSONCheck{Array: true}}
	look := secrets.Screen{Set: f.screen.Declared, Detect: f.screen.Detects()}
	content := look.JSON(read, f.screen.Stops(conversationName))
	defer content.Close()
	blob, err := cas.WriteBlob(ctx, w, cas.Conversations, content)
	if f.content(InConversation, "", content.Report(), err) {
		return index.Blob{}, nil
	}
	if err != nil {
		return index.Blob{}, err
	}
	return blobRef(blob), c.same(read.n, &read.check)
}

// put stores the lists of what was left out and of where secrets were found, those of a
// capture, too, and names them in a record.
func (f *secretsFound) put(ctx context.Context, w cas.Writer, rec *index.Record, got capture.Result) error {
	left := append(f.left[:len(f.left):len(f.left)], got.Left...)
	slices.SortStableFunc(left, func(a, b capture.Omission) int { return strings.Compare(a.Path, b.Path) })
	if len(left) > 0 {
		list, err := encodeOmissions(left)
		if err != nil {
			return err
		}
		if rec.Omissions, err = putSmall(ctx, w, list); err != nil {
			return err
		}
		rec.OmissionCount = uint64(len(left))
	}
	f.list = append(f.list, inFiles(got.Secrets)...)
	slices.SortStableFunc(f.list, comparePlaces)
	return f.putList(ctx, w, rec)
}

// putList stores the list of where secrets were found, if there is one, and names it in a
// record.
func (f *secretsFound) putList(ctx context.Context, w cas.Writer, rec *index.Record) error {
	rec.Redactions, rec.FindingCount = countSecrets(f.list)
	if len(f.list) == 0 {
		return nil
	}
	list, err := encodeSecrets(f.list)
	if err != nil {
		return err
	}
	rec.Secrets, err = putSmall(ctx, w, list)
	return err
}

// inFiles is what a capture has found.
func inFiles(files []capture.SecretFile) []FoundSecrets {
	var list []FoundSecrets
	for _, f := range files {
		list = append(list, FoundSecrets{Place: InFile, Path: f.Path, Report: f.Report})
	}
	return list
}

// countSecrets returns the numbers of a record.
func countSecrets(list []FoundSecrets) (redactions, findings uint64) {
	for _, f := range list {
		redactions += uint64(len(f.Redacted))
		findings += uint64(len(f.Findings) + f.More)
	}
	return redactions, findings
}
