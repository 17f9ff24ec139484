package capture

import (
	"errors"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/tree"
)

type Lower struct {
	Upper    string
	Trees    *tree.Reader
	Root     cas.Hash
	UID, GID uint32
	Links    [][]string
	Secrets  []SecretFile
	Ignore   bool
}

var ErrNeedsScan = errors.New("x")

func Discard() cas.Writer { return discard{} }
