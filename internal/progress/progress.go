// Package progress counts what a long operation has done, for somebody who watches
// it.
package progress

import (
	"context"
	"sync/atomic"
)

// A Meter counts items (files, or objects of the store) and bytes. It may be used by
// many goroutines. The nil Meter counts nothing.
type Meter struct {
	items, bytes, allItems, allBytes atomic.Int64
}

// State is what a meter shows.
type State struct {
	Items, Bytes       int64 // done
	AllItems, AllBytes int64 // in all, or about; 0: not known
}

// Add counts what has been done.
func (m *Meter) Add(items, bytes int64) {
	if m != nil {
		m.items.Add(items)
		m.bytes.Add(bytes)
	}
}

// Expect says how much there is to do in all.
func (m *Meter) Expect(items, bytes int64) {
	if m != nil {
		m.allItems.Store(items)
		m.allBytes.Store(bytes)
	}
}

// State returns what the meter shows now.
func (m *Meter) State() State {
	if m == nil {
		return State{}
	}
	return State{m.items.Load(), m.bytes.Load(), m.allItems.Load(), m.allBytes.Load()}
}

type meterKey struct{}

// With returns a context whose operations count with m.
func With(ctx context.Context, m *Meter) context.Context {
	return context.WithValue(ctx, meterKey{}, m)
}

// From returns the meter of [With], or nil.
func From(ctx context.Context) *Meter {
	m, _ := ctx.Value(meterKey{}).(*Meter)
	return m
}
