package tree

import (
	"math"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/snapfs/snapfs/cas"
)

// A decoded thing knows how much memory it takes, in bytes.
type decoded interface{ cost() int64 }

// A cache holds the decoded things that were used last, bounded by their cost.
type cache struct {
	mu   sync.Mutex
	lru  *simplelru.LRU[cas.Hash, decoded]
	max  int64
	used int64
}

func newCache(maxBytes int64) *cache {
	lru, err := simplelru.NewLRU[cas.Hash, decoded](math.MaxInt, nil)
	if err != nil {
		panic(err) // only a size below 1 is an error
	}
	return &cache{lru: lru, max: maxBytes}
}

// get returns nil when h is not there.
func (c *cache) get(h cas.Hash) decoded {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, _ := c.lru.Get(h)
	return v
}

// add keeps v, unless somebody else was faster, and returns what is kept. What
// alone is larger than the cache is not kept.
func (c *cache) add(h cas.Hash, v decoded) decoded {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok := c.lru.Get(h); ok {
		return old
	}
	if v.cost() > c.max {
		return v
	}
	c.lru.Add(h, v)
	for c.used += v.cost(); c.used > c.max; {
		_, old, ok := c.lru.RemoveOldest()
		if !ok {
			break
		}
		c.used -= old.cost()
	}
	return v
}
