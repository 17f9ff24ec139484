package snapshot

import (
	"bytes"
	"fmt"

	"github.com/fxamacker/cbor/v2"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
)

// maxArtifacts is how many artifacts a checkpoint can hold.
const maxArtifacts = 131_072

var artifactEnc, artifactDec = index.CBOR(cbor.DecOptions{UTF8: cbor.UTF8RejectInvalid, MaxArrayElements: maxArtifacts})

// encodeArtifacts returns the bytes of a record's list of artifacts. It fails with
// [cas.ErrTooLarge], or with [index.ErrInvalid] where it could not be read again.
func encodeArtifacts(list []index.Artifact) ([]byte, error) {
	if len(list) > maxArtifacts {
		return nil, fmt.Errorf("list of artifacts: %d, at most %d can be: %w", len(list), maxArtifacts, cas.ErrTooLarge)
	}
	for _, a := range list {
		if err := a.Validate(); err != nil {
			return nil, err
		}
	}
	data, err := artifactEnc.Marshal(list)
	if err != nil {
		return nil, fmt.Errorf("encode the list of artifacts: %w", err)
	}
	if len(data) > maxList {
		return nil, fmt.Errorf("list of artifacts: %d bytes, at most %d can be: %w", len(data), maxList, cas.ErrTooLarge)
	}
	return data, nil
}

// decodeArtifacts is the inverse of encodeArtifacts. It refuses with [cas.ErrCorrupt]
// what no thread can have: an artifact that breaks the rules of
// [index.Artifact.Validate], or an id that is there twice.
func decodeArtifacts(data []byte) ([]index.Artifact, error) {
	var list []index.Artifact
	if err := artifactDec.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("list of artifacts: %v: %w", err, cas.ErrCorrupt)
	}
	seen := make(map[string]struct{}, len(list))
	for _, a := range list {
		if err := a.Validate(); err != nil {
			return nil, fmt.Errorf("list of artifacts: %w: %w", err, cas.ErrCorrupt)
		}
		if _, ok := seen[a.ID]; ok {
			return nil, fmt.Errorf("list of artifacts: %s is there twice: %w", quoted(a.ID), cas.ErrCorrupt)
		}
		seen[a.ID] = struct{}{}
	}
	if again, err := artifactEnc.Marshal(list); err != nil || !bytes.Equal(again, data) {
		return nil, fmt.Errorf("list of artifacts: not in its canonical encoding: %w", cas.ErrCorrupt)
	}
	return list, nil
}
