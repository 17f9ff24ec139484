package cas

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func key(n byte) Key { return Key{NS: Files, Hash: Hash{n}} }

func TestCacheIsBoundedByCost(t *testing.T) {
	c := NewCache(100, func(b []byte) int64 { return int64(len(b)) })
	loads := 0
	get := func(n byte, size int) {
		t.Helper()
		b, err := c.Get(key(n), func() ([]byte, error) { loads++; return make([]byte, size), nil })
		require.NoError(t, err)
		require.Len(t, b, size)
		sum := int64(0)
		for _, v := range c.lru.Values() { // what it says it holds is what it holds
			sum += int64(len(v))
		}
		require.Equal(t, sum, c.used)
		require.LessOrEqual(t, c.used, int64(100))
	}
	get(1, 40)
	get(2, 40)
	get(1, 40)
	require.Equal(t, 2, loads)
	get(3, 40) // 2 was used longest ago
	get(1, 40)
	require.Equal(t, 3, loads)
	get(2, 40)
	require.Equal(t, 4, loads)
	get(4, 101) // larger than the cache: given out and not kept
	get(4, 101)
	require.Equal(t, 6, loads)
	_, err := c.Get(Key{NS: Trees, Hash: Hash{2}}, func() ([]byte, error) { return nil, errors.New("namespaces are apart") })
	require.ErrorContains(t, err, "namespaces are apart")
}

func TestCacheLoadsOnceForAll(t *testing.T) {
	c := NewCache(100, func(int) int64 { return 1 })
	var loads atomic.Int64
	asked, answer := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	load := func() (int, error) {
		if loads.Add(1) == 1 {
			close(asked)
		}
		<-answer
		return 7, nil
	}
	results := make([]int, 8)
	for i := range results {
		wg.Go(func() { results[i], _ = c.Get(key(1), load) })
	}
	<-asked
	close(answer)
	wg.Wait()
	require.Equal(t, []int{7, 7, 7, 7, 7, 7, 7, 7}, results)
	require.EqualValues(t, 1, loads.Load())

	failed := errors.New("failed")
	_, err := c.Get(key(2), func() (int, error) { return 0, failed })
	require.ErrorIs(t, err, failed)
	v, err := c.Get(key(2), func() (int, error) { return 9, nil })
	require.NoError(t, err, "an error is not kept")
	require.Equal(t, 9, v)
}
