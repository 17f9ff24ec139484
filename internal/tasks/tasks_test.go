package tasks

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestShared: every task is done once, whoever found it, and all who wait end.
func TestShared(t *testing.T) {
	const depth, below = 6, 4
	s := New(0)
	var done [depth]atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				level, ok := s.Take(true)
				if !ok {
					return
				}
				done[level].Add(1)
				if level+1 < depth {
					more := make([]int, below)
					for i := range more {
						more[i] = level + 1
					}
					s.Put(more...)
				}
				s.Done()
			}
		})
	}
	wg.Wait()
	want := int64(1)
	for level := range done {
		require.Equal(t, want, done[level].Load())
		want *= below
	}
}

// TestOrder: the last put comes first, and who does not wait is told that there is
// nothing although something may come.
func TestOrder(t *testing.T) {
	s := New("a")
	first, ok := s.Take(false)
	require.True(t, ok)
	require.Equal(t, "a", first)
	_, ok = s.Take(false)
	require.False(t, ok)
	s.Put("b", "c")
	s.Put()
	for _, want := range []string{"c", "b"} {
		got, ok := s.Take(true)
		require.True(t, ok)
		require.Equal(t, want, got)
		s.Done()
	}
	s.Done()
	_, ok = s.Take(true)
	require.False(t, ok)
}
