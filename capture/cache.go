package capture

// lruCache is an approximate LRU cache with two generations: a used entry moves to the
// young one, and when that is full, the old one is evicted.
type lruCache[K comparable, V any] struct {
	young, old map[K]*V
	limit      int      // entries per generation
	onEvict    func(*V) // may be nil
}

func newLRUCache[K comparable, V any](limit int, drop func(*V)) *lruCache[K, V] {
	return &lruCache[K, V]{young: map[K]*V{}, limit: max(limit/2, 1), onEvict: drop}
}

// get returns the value of k. It adds a zero value if there is none.
func (c *lruCache[K, V]) get(k K) *V {
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
		if c.onEvict != nil {
			for _, evicted := range c.old {
				c.onEvict(evicted)
			}
		}
		c.young, c.old = make(map[K]*V), c.young
	}
	c.young[k] = v
	return v
}
