package capture

// cache remembers up to a number of things, and forgets those that were not
// asked for longest: what is used moves to the younger of two generations, and
// when that is full, the older one goes.
type cache[K comparable, V any] struct {
	young, old map[K]*V
	limit      int      // of a generation
	drop       func(*V) // told what is forgotten; may be nil
}

func newCache[K comparable, V any](limit int, drop func(*V)) *cache[K, V] {
	return &cache[K, V]{young: map[K]*V{}, limit: max(limit/2, 1), drop: drop}
}

// get returns what is remembered of k, a new zero value if nothing is.
func (c *cache[K, V]) get(k K) *V {
	if v, ok := c.young[k]; ok {
		return v
	}
	v, ok := c.old[k]
	if ok {
		delete(c.old, k)
	} else {
		v = new(V)
	}
	if len(c.young) >= c.limit {
		if c.drop != nil {
			for _, gone := range c.old {
				c.drop(gone)
			}
		}
		c.young, c.old = make(map[K]*V), c.young
	}
	c.young[k] = v
	return v
}
