// Package match brings messages and receives together as MPI demands: a message
// goes to the first receive that was posted for it, a receive takes the first
// message that came for it, and nothing overtakes.
//
// Both queues find their first match in constant time, wildcards included, however
// many others wait. They know nothing of how messages travel. A queue belongs to
// one goroutine; its nodes are the caller's, who may use them again once they are
// out.
package match

// Any as a source or a tag of a receive takes all of them.
const Any = -1

// Envelope is what decides where a message goes. In a receive, Source and Tag may
// be Any.
type Envelope struct {
	Context uint32 // of the communicator
	Source  int32
	Tag     int32
}

// Takes reports whether a receive with this envelope takes a message with that one.
func (e Envelope) Matches(message Envelope) bool {
	return e.Context == message.Context && (e.Source == Any || e.Source == message.Source) && (e.Tag == Any || e.Tag == message.Tag)
}

// Overlaps reports whether there is a message that receives of both envelopes take.
func (e Envelope) Overlaps(o Envelope) bool {
	return e.Context == o.Context && (e.Source == Any || o.Source == Any || e.Source == o.Source) && (e.Tag == Any || o.Tag == Any || e.Tag == o.Tag)
}

// The ways to be asked for, by what is a wildcard.
const (
	exact = iota
	anySource
	anyTag
	anySourceTag
	wildcardSets
)

// way is the one in which a receive asks.
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

// blurred is an envelope as one who asks in this way sees it.
func (e Envelope) masked(wildcards int) Envelope {
	if wildcards&anySource != 0 {
		e.Source = Any
	}
	if wildcards&anyTag != 0 {
		e.Tag = Any
	}
	return e
}

// list is of the nodes that look the same in one way, in their order.
type list[T any] struct {
	first, last *Node[T]
}

type link[T any] struct {
	prev, next *Node[T]
	list       *list[T] // nil when in none
}

// Node is a place in a queue. The zero Node is in none.
type Node[T any] struct {
	Envelope Envelope
	Value    T

	order uint64
	links [wildcardSets]link[T]
}

// Queued reports whether the node is in a queue.
func (n *Node[T]) Queued() bool { return n.order != 0 }

func (l *list[T]) push(n *Node[T], w int) {
	n.links[w] = link[T]{prev: l.last, list: l}
	if l.last == nil {
		l.first = n
	} else {
		l.last.links[w].next = n
	}
	l.last = n
}

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

// index finds lists by envelope. It keeps those that ran empty, for most programs
// use the same few envelopes for ever, up to a limit.
type index[T any] struct {
	lists      map[Envelope]*list[T]
	emptyLists int
}

// maxEmpty is how many empty lists are kept: a program that never uses a tag twice
// must not grow.
const maxEmptyLists = 4096

func (x *index[T]) push(n *Node[T], key Envelope, w int) {
	l := x.lists[key]
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

func (x *index[T]) first(key Envelope) *Node[T] {
	if l := x.lists[key]; l != nil {
		return l.first
	}
	return nil
}

func (x *index[T]) remove(n *Node[T], key Envelope, w int) {
	l := n.links[w].list
	n.unlink(w)
	if l.first != nil {
		return
	}
	if x.emptyLists >= maxEmptyLists {
		delete(x.lists, key)
		return
	}
	x.emptyLists++
}
