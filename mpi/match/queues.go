package match

// Posted are the receives that wait for messages.
type Posted[T any] struct {
	byWildcards [wildcardSets]index[T]
	count       [wildcardSets]int
	order       uint64
	n           int
}

// Len is how many there are.
func (q *Posted[T]) Len() int { return q.n }

// Add puts a receive behind the others.
func (q *Posted[T]) Add(n *Node[T]) {
	if n.Queued() {
		panic("match: the node is in a queue already")
	}
	w := n.Envelope.wildcards()
	q.order++
	n.order = q.order
	q.byWildcards[w].push(n, n.Envelope, w)
	q.count[w]++
	q.n++
}

// First is the receive that a message goes to: of those that take it, the one that
// was posted first; nil if there is none. It stays where it is.
func (q *Posted[T]) Match(message Envelope) (found *Node[T]) {
	for w := range wildcardSets {
		if q.count[w] == 0 {
			continue
		}
		n := q.byWildcards[w].first(message.masked(w))
		if n != nil && (found == nil || n.order < found.order) {
			found = n
		}
	}
	return found
}

// Last is the receive with just this envelope that was posted last; nil if there is
// none.
func (q *Posted[T]) Last(e Envelope) *Node[T] {
	if l := q.byWildcards[e.wildcards()].lists[e]; l != nil {
		return l.last
	}
	return nil
}

// Before is the receive with the same envelope that was posted before another; nil
// if there is none.
func (q *Posted[T]) Prev(n *Node[T]) *Node[T] { return n.links[n.Envelope.wildcards()].prev }

// Wild reports whether a receive with a wildcard waits that takes such messages.
func (q *Posted[T]) HasWildcardMatch(message Envelope) bool {
	for w := exact + 1; w < wildcardSets; w++ {
		if q.count[w] > 0 && q.byWildcards[w].first(message.masked(w)) != nil {
			return true
		}
	}
	return false
}

// Remove takes a receive out.
func (q *Posted[T]) Remove(n *Node[T]) {
	w := n.Envelope.wildcards()
	q.byWildcards[w].remove(n, n.Envelope, w)
	q.count[w]--
	q.n--
	n.order = 0
}

// Unexpected are the messages that nobody has asked for yet.
type Unexpected[T any] struct {
	byWildcards [wildcardSets]index[T]
	order       uint64
	n           int
}

// Len is how many there are.
func (q *Unexpected[T]) Len() int { return q.n }

// Add puts a message behind the others.
func (q *Unexpected[T]) Add(n *Node[T]) {
	if n.Queued() {
		panic("match: the node is in a queue already")
	}
	q.order++
	n.order = q.order
	for w := range wildcardSets {
		q.byWildcards[w].push(n, n.Envelope.masked(w), w)
	}
	q.n++
}

// First is the message that a receive takes: of those for it, the one that came
// first; nil if there is none. It stays where it is.
func (q *Unexpected[T]) Match(receive Envelope) *Node[T] {
	return q.byWildcards[receive.wildcards()].first(receive)
}

// Remove takes a message out.
func (q *Unexpected[T]) Remove(n *Node[T]) {
	for w := range wildcardSets {
		q.byWildcards[w].remove(n, n.Envelope.masked(w), w)
	}
	q.n--
	n.order = 0
}
