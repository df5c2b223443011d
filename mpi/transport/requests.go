package transport

// Requests is the table of posted work requests, each with a context of type T. A WRID is
// the index of a request and a generation, which identifies late completions of closed queue
// pairs.
type Requests[T any] struct {
	entries []request[T]
	idle    []uint32
}

type request[T any] struct {
	context    T
	generation uint32
	posted     bool
}

// Add stores a request and returns its WRID.
func (r *Requests[T]) Add(context T) (wrid uint64) {
	n := len(r.idle)
	if n == 0 {
		r.entries = append(r.entries, request[T]{context: context, posted: true})
		return uint64(len(r.entries) - 1)
	}
	i := r.idle[n-1]
	r.idle = r.idle[:n-1]
	e := &r.entries[i]
	e.context, e.posted = context, true
	return uint64(e.generation)<<32 | uint64(i)
}

// Find returns the context of a posted request. It returns nil for any other WRID; stale
// reports whether the WRID is that of a removed request.
func (r *Requests[T]) Find(wrid uint64) (context *T, stale bool) {
	i := uint32(wrid)
	if int(i) >= len(r.entries) {
		return nil, false
	}
	e := &r.entries[i]
	if e.generation != uint32(wrid>>32) {
		return nil, true
	}
	if !e.posted {
		return nil, false
	}
	return &e.context, false
}

// Remove removes a request, whose WRID becomes stale.
func (r *Requests[T]) Remove(wrid uint64) {
	i := uint32(wrid)
	r.entries[i] = request[T]{generation: r.entries[i].generation + 1}
	r.idle = append(r.idle, i)
}

// RemoveMatching removes all requests for which match returns true, and calls removed for
// each.
func (r *Requests[T]) RemoveMatching(match func(*T) bool, removed func(T)) {
	for i := range r.entries {
		if e := &r.entries[i]; e.posted && match(&e.context) {
			context := e.context
			r.Remove(uint64(i)) // Remove uses only the index of a WRID
			removed(context)
		}
	}
}
