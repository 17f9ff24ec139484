package cas

import (
	"math"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/sync/singleflight"
)

// A Cache holds what was made of objects and used last, bounded by its cost in
// bytes. Its methods may be called concurrently. Who asks while another loads
// the same waits for that.
type Cache[V any] struct {
	cost    func(V) int64
	max     int64
	loading singleflight.Group

	mu   sync.Mutex
	lru  *simplelru.LRU[Key, V]
	used int64
}

// NewCache makes a cache of at most maxBytes by cost.
func NewCache[V any](maxBytes int64, cost func(V) int64) *Cache[V] {
	lru, err := simplelru.NewLRU[Key, V](math.MaxInt, nil)
	if err != nil {
		panic(err) // only a size below 1 is an error
	}
	return &Cache[V]{cost: cost, max: maxBytes, lru: lru}
}

// Get returns what is kept for key, or what load makes. What alone is larger
// than the cache is not kept, nor is an error.
func (c *Cache[V]) Get(key Key, load func() (V, error)) (V, error) {
	if v, ok := c.kept(key); ok {
		return v, nil
	}
	mine := false
	loaded, err, _ := c.loading.Do(string(append(key.Hash[:], byte(key.NS))), func() (any, error) {
		mine = true
		if v, ok := c.kept(key); ok { // since this one looked
			return v, nil
		}
		v, err := load()
		if err == nil {
			c.add(key, v)
		}
		return v, err
	})
	if err == nil {
		return loaded.(V), nil
	}
	var none V
	if mine {
		return none, err
	}
	// Another one's attempt failed, for a reason that may be its own.
	v, err := load()
	if err != nil {
		return none, err
	}
	c.add(key, v)
	return v, nil
}

// Has reports whether something is kept for key.
func (c *Cache[V]) Has(key Key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lru.Contains(key)
}

func (c *Cache[V]) kept(key Key) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lru.Get(key)
}

func (c *Cache[V]) add(key Key, v V) {
	cost := c.cost(v)
	if cost > c.max {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok := c.lru.Peek(key); ok {
		c.used -= c.cost(old)
	}
	c.lru.Add(key, v)
	for c.used += cost; c.used > c.max; {
		_, old, ok := c.lru.RemoveOldest()
		if !ok {
			return
		}
		c.used -= c.cost(old)
	}
}
