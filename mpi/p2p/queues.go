package p2p

// Posted is the queue of posted receives. A message goes to the first posted receive that
// matches it. The first match is found in constant time, wildcards included. The caller owns
// the nodes and may reuse them once they are removed.
type Posted[T any] struct {
	byWildcards [numWildcardSets]index[T]
	count       [numWildcardSets]int
	order       uint64
	n           int
}

// Len is the number of receives.
func (q *Posted[T]) Len() int { return q.n }

// Add appends a receive.
func (q *Posted[T]) Add(n *Node[T]) {
	if n.Queued() {
		panic("match: the node is already queued")
	}
	w := n.Envelope.wildcards()
	q.order++
	n.order = q.order
	q.byWildcards[w].push(n, n.Envelope, w)
	q.count[w]++
	q.n++
}

// Match returns the first posted receive that matches a message, without removing it; nil
// if there is none.
func (q *Posted[T]) Match(message Envelope) (found *Node[T]) {
	for w := range numWildcardSets {
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

// Last returns the last receive with exactly this envelope; nil if there is none.
func (q *Posted[T]) Last(e Envelope) *Node[T] {
	if l := q.byWildcards[e.wildcards()].lists[e]; l != nil {
		return l.last
	}
	return nil
}

// Prev returns the receive with the same envelope that was posted before n; nil if there
// is none.
func (q *Posted[T]) Prev(n *Node[T]) *Node[T] { return n.links[n.Envelope.wildcards()].prev }

// HasWildcardMatch reports whether a receive with a wildcard matches the message.
func (q *Posted[T]) HasWildcardMatch(message Envelope) bool {
	for w := exact + 1; w < numWildcardSets; w++ {
		if q.count[w] > 0 && q.byWildcards[w].first(message.masked(w)) != nil {
			return true
		}
	}
	return false
}

// Remove removes a receive.
func (q *Posted[T]) Remove(n *Node[T]) {
	w := n.Envelope.wildcards()
	q.byWildcards[w].remove(n, n.Envelope, w)
	q.count[w]--
	q.n--
	n.order = 0
}

// Unexpected is the queue of unexpected messages. A receive takes the first one that matches
// it, found in constant time as in [Posted].
type Unexpected[T any] struct {
	byWildcards [numWildcardSets]index[T]
	order       uint64
	n           int
}

// Len is the number of messages.
func (q *Unexpected[T]) Len() int { return q.n }

// Add appends a message.
func (q *Unexpected[T]) Add(n *Node[T]) {
	if n.Queued() {
		panic("match: the node is already queued")
	}
	q.order++
	n.order = q.order
	for w := range numWildcardSets {
		q.byWildcards[w].push(n, n.Envelope.masked(w), w)
	}
	q.n++
}

// Match returns the first message that matches a receive, without removing it; nil if
// there is none.
func (q *Unexpected[T]) Match(receive Envelope) *Node[T] {
	return q.byWildcards[receive.wildcards()].first(receive)
}

// Remove removes a message.
func (q *Unexpected[T]) Remove(n *Node[T]) {
	for w := range numWildcardSets {
		q.byWildcards[w].remove(n, n.Envelope.masked(w), w)
	}
	q.n--
	n.order = 0
}
