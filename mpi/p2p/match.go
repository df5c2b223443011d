package p2p

// Any is the wildcard for the source or the tag of a receive.
const Any = -1

// Envelope is the match information of a message or a receive, where Source and Tag may be Any.
type Envelope struct {
	Context uint32 // of the communicator
	Source  int32
	Tag     int32
}

// Wildcard sets: bits for the fields of an envelope that are Any, the source and the tag.
const (
	exact = iota
	anySource
	anyTag
	anySourceTag
	numWildcardSets
)

// wildcards returns the set of wildcards of a receive.
func (e Envelope) wildcards() int {
	w := exact
	if e.Source == Any {
		w |= anySource
	}
	if e.Tag == Any {
		w |= anyTag
	}
	return w
}

// masked returns the envelope with the fields in a set of wildcards replaced by Any.
func (e Envelope) masked(wildcards int) Envelope {
	if wildcards&anySource != 0 {
		e.Source = Any
	}
	if wildcards&anyTag != 0 {
		e.Tag = Any
	}
	return e
}

// list is a FIFO of the nodes with the same masked envelope.
type list[T any] struct {
	first, last *Node[T]
}

type link[T any] struct {
	prev, next *Node[T]
	list       *list[T] // nil if not queued
}

// Node is an element of a queue. The zero Node is not queued.
type Node[T any] struct {
	Envelope Envelope
	Value    T

	order uint64
	links [numWildcardSets]link[T]
}

// Queued reports whether the node is in a queue.
func (n *Node[T]) Queued() bool { return n.order != 0 }

// push appends a node to l. l has nodes whose envelopes are equal if the fields in the wildcard set
// w (none, the source, the tag or both) are replaced by Any. A node has a link for each wildcard
// set, because it may be in one list of each set at the same time.
func (l *list[T]) push(n *Node[T], w int) {
	n.links[w] = link[T]{prev: l.last, list: l}
	if l.last == nil {
		l.first = n
	} else {
		l.last.links[w].next = n
	}
	l.last = n
}

// unlink removes the node from its list for the wildcard set w.
func (n *Node[T]) unlink(w int) {
	l := &n.links[w]
	if l.prev == nil {
		l.list.first = l.next
	} else {
		l.prev.links[w].next = l.next
	}
	if l.next == nil {
		l.list.last = l.prev
	} else {
		l.next.links[w].prev = l.prev
	}
	*l = link[T]{}
}

// index finds lists by masked envelope. It keeps up to maxEmptyLists empty lists, since
// most programs reuse few envelopes.
type index[T any] struct {
	lists      map[Envelope]*list[T]
	emptyLists int
	// lastKey and last are the key and the list that were found last; last is nil if there is none.
	lastKey Envelope
	last    *list[T]
}

// maxEmptyLists bounds the memory of a program that uses each tag only once.
const maxEmptyLists = 4096

// push appends a node to the list of key, which it creates if needed. key is the node's envelope,
// masked with the wildcard set w.
func (x *index[T]) push(n *Node[T], key Envelope, w int) {
	l := x.find(key)
	switch {
	case l == nil:
		if x.lists == nil {
			x.lists = make(map[Envelope]*list[T])
		}
		l = new(list[T])
		x.lists[key] = l
	case l.first == nil:
		x.emptyLists--
	}
	l.push(n, w)
}

// find returns the list of a masked envelope; nil if there is none. It looks in the map only if the
// key is not the last one.
func (x *index[T]) find(key Envelope) *list[T] {
	if x.last != nil && x.lastKey == key {
		return x.last
	}
	l := x.lists[key]
	if l != nil {
		x.lastKey, x.last = key, l
	}
	return l
}

// first returns the first node in the list of a masked envelope; nil if there is none.
func (x *index[T]) first(key Envelope) *Node[T] {
	if l := x.find(key); l != nil {
		return l.first
	}
	return nil
}

// remove removes a node from the list of key, its envelope masked with the wildcard set w. It
// deletes a list that becomes empty if maxEmptyLists empty ones are kept already.
func (x *index[T]) remove(n *Node[T], key Envelope, w int) {
	l := n.links[w].list
	n.unlink(w)
	if l.first != nil {
		return
	}
	if x.emptyLists >= maxEmptyLists {
		delete(x.lists, key)
		x.last = nil
		return
	}
	x.emptyLists++
}

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

// Add appends a receive to those with the same envelope. n.order orders all receives, for Match.
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

// Match returns the first posted receive that matches a message, or nil. It does not remove it.
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

// prev returns the receive with the same envelope that was posted before n; nil if there is none.
func (n *Node[T]) prev() *Node[T] { return n.links[n.Envelope.wildcards()].prev }

// next returns the message or RTR with the same envelope that arrived after n; nil if there is none.
func (n *Node[T]) next() *Node[T] { return n.links[exact].next }

// HasWildcardMatch reports whether a receive with a wildcard matches the message.
func (q *Posted[T]) HasWildcardMatch(message Envelope) bool {
	for w := exact + 1; w < numWildcardSets; w++ {
		if q.count[w] > 0 && q.byWildcards[w].first(message.masked(w)) != nil {
			return true
		}
	}
	return false
}

// Remove removes a receive; Queued is then false.
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
	n           int
}

// Len is the number of messages.
func (q *Unexpected[T]) Len() int { return q.n }

// Add appends a message, once for each set of wildcards with which a receive may match it.
func (q *Unexpected[T]) Add(n *Node[T]) {
	if n.Queued() {
		panic("match: the node is already queued")
	}
	n.order = 1 // any but 0, for Queued: every list is in the order of the messages
	for w := range numWildcardSets {
		q.byWildcards[w].push(n, n.Envelope.masked(w), w)
	}
	q.n++
}

// Match returns the first message that matches a receive, or nil. It does not remove it.
func (q *Unexpected[T]) Match(receive Envelope) *Node[T] {
	if q.n == 0 {
		return nil
	}
	return q.byWildcards[receive.wildcards()].first(receive)
}

// Remove removes a message from the lists of all sets of wildcards; Queued is then false.
func (q *Unexpected[T]) Remove(n *Node[T]) {
	for w := range numWildcardSets {
		q.byWildcards[w].remove(n, n.Envelope.masked(w), w)
	}
	q.n--
	n.order = 0
}
