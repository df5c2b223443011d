package misuse

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/explore"
)

// CommID identifies a communicator: its context, and the first of its ranks, because communicators
// of disjoint groups may have the same context.
type CommID struct {
	Context uint32
	First   int
}

// comm is what all ranks of a communicator share.
type comm struct {
	id      CommID
	members []int // world ranks
	entries [][]*Op
	reached map[int]int // number of calls, by world rank
	bad     bool        // a mismatch was reported: later ones follow from it
}

// Comm is a communicator, as one rank sees it.
type Comm struct {
	*comm
	rank  *Rank
	name  string
	place explore.Place // of its creation
	freed bool
}

// NewComm records a communicator. members returns its world ranks; place is the call that created it, without
// a line for those that exist from the start.
func (r *Rank) NewComm(id CommID, members func() []int, name string, place explore.Place) *Comm {
	shared := r.c.comms[id]
	if shared == nil {
		shared = &comm{id: id, members: members(), reached: map[int]int{}}
		r.c.comms[id] = shared
	}
	m := &Comm{comm: shared, rank: r, name: name, place: place}
	r.comms = append(r.comms, m)
	return m
}

// Freed records that the communicator is freed.
func (m *Comm) Freed() { m.freed = true }

// Call has the arguments of a collective that must agree on all ranks. Name is that of the function.
type Call struct {
	Name       string
	Root       int // -1: none
	Type, Op   string
	Bytes      int   // of a block or the vector, the same on all ranks; -1: unknown
	Counts     []int // the same on all ranks
	Send, Recv []int // bytes to and from each rank, which must agree with those of the peer
	Own        int   // bytes that go to or from the root, which has Send or Recv
	Assert     uint8
	FromRoot   bool // the data of the root reaches all ranks, and not that of all ranks the root
}

// Collective records that the rank calls a collective, and compares it with the calls of other ranks.
func (m *Comm) Collective(call Call, place explore.Place) *Op {
	r := m.rank
	r.tick()
	o := &Op{Message: Message{Comm: m, Place: place}, rank: r, kind: collectiveOp, call: &call, index: m.reached[r.rank], clock: slices.Clone(r.clock)}
	m.reached[r.rank]++
	if o.index == len(m.entries) {
		m.entries = append(m.entries, nil)
	}
	entry := m.entries[o.index]
	m.entries[o.index] = append(entry, o)
	for _, other := range entry {
		if m.compare(other, o) {
			break
		}
	}
	m.memberEnded()
	if r.clock == nil && len(m.entries[o.index]) == len(m.members) {
		m.entries[o.index] = nil // nobody compares with it, or orders calls by it
	}
	return o
}

// compare reports the first difference between two calls that must agree.
func (m *Comm) compare(a, b *Op) (differ bool) {
	kind, text := difference(a, b)
	if kind == "" || m.bad {
		return kind != ""
	}
	m.bad = true
	m.rank.c.reportFatal(kind, fmt.Sprintf("call %d on %s: %s", a.index+1, m.name, text), a.Place, b.Place)
	return true
}

// difference returns the kind and the text of the first difference between two calls; an empty kind
// if there is none.
func difference(a, b *Op) (kind, text string) {
	x, y := a.call, b.call
	ra, rb := a.rank.rank, b.rank.rank
	switch {
	case x.Name != y.Name:
		return CollectiveOrder, fmt.Sprintf("rank %d calls %s, rank %d %s", ra, x.Name, rb, y.Name)
	case x.Root != y.Root:
		return CollectiveRoot, fmt.Sprintf("rank %d passes root %d, rank %d root %d", ra, x.Root, rb, y.Root)
	case x.Assert != y.Assert:
		return FenceAssert, fmt.Sprintf("ranks %d and %d pass different assertions", ra, rb)
	case x.Op != y.Op:
		return CollectiveOp, fmt.Sprintf("rank %d passes %s, rank %d %s", ra, x.Op, rb, y.Op)
	case x.Type != y.Type:
		return CollectiveType, fmt.Sprintf("rank %d passes %s, rank %d %s", ra, x.Type, rb, y.Type)
	case x.Bytes >= 0 && y.Bytes >= 0 && x.Bytes != y.Bytes:
		return CollectiveCount, fmt.Sprintf("rank %d passes %d bytes, rank %d %d", ra, x.Bytes, rb, y.Bytes)
	case !slices.Equal(x.Counts, y.Counts):
		return CollectiveCount, fmt.Sprintf("rank %d passes sizes %v, rank %d %v", ra, x.Counts, rb, y.Counts)
	}
	text = cmp.Or(sizesDiffer(a, b), sizesDiffer(b, a))
	if text != "" {
		return CollectiveCount, text
	}
	return "", ""
}

// sizesDiffer compares what a sends with what b receives from it, and what a collects as the root with
// what b contributes; empty if they agree.
func sizesDiffer(a, b *Op) string {
	x, y, from, to := a.call, b.call, slices.Index(a.Comm.members, a.rank.rank), slices.Index(b.Comm.members, b.rank.rank)
	isRoot := x.Root == from
	switch {
	case x.Root < 0 && x.Send != nil && y.Recv != nil && x.Send[to] != y.Recv[from]:
		return fmt.Sprintf("rank %d sends %d bytes to rank %d, which receives %d", a.rank.rank, x.Send[to], b.rank.rank, y.Recv[from])
	case isRoot && x.Send != nil && x.Send[to] != y.Own:
		return fmt.Sprintf("root %d scatters %d bytes to rank %d, which receives %d", a.rank.rank, x.Send[to], b.rank.rank, y.Own)
	case isRoot && x.Recv != nil && x.Recv[to] != y.Own:
		return fmt.Sprintf("root %d gathers %d bytes from rank %d, which sends %d", a.rank.rank, x.Recv[to], b.rank.rank, y.Own)
	}
	return ""
}

// memberEnded reports a collective that a rank never calls, because its program has ended.
func (m *Comm) memberEnded() {
	c := m.rank.c
	for _, member := range m.members {
		r := c.ranks[member]
		n := m.reached[member]
		if r == nil || !r.ended || n >= len(m.entries) || m.bad || c.failed {
			continue
		}
		m.bad = true
		called := m.entries[n][0]
		c.reportFatal(CollectiveMissing, fmt.Sprintf("rank %d has ended without call %d on %s, which is %s at rank %d", member, n+1, m.name, called.call.Name, called.rank.rank), called.Place)
	}
}

// missing returns the ranks that have not called a collective.
func (o *Op) missing() (ranks []int) {
	for _, member := range o.Comm.members {
		if o.Comm.reached[member] <= o.index {
			ranks = append(ranks, member)
		}
	}
	return ranks
}

// AllArrived reports whether all ranks have called the collective.
func (o *Op) AllArrived() bool { return len(o.missing()) == 0 }

// Done records that the rank has completed a collective: its later calls happen after the calls of the
// ranks whose data it has received.
func (o *Op) Done() {
	o.done = true
	if o.rank.clock == nil {
		return
	}
	me := slices.Index(o.Comm.members, o.rank.rank)
	for _, other := range o.Comm.entries[o.index] {
		from := slices.Index(o.Comm.members, other.rank.rank)
		root := o.call.Root
		if root < 0 || root == from && o.call.FromRoot || root == me && !o.call.FromRoot {
			o.rank.join(other.clock)
		}
	}
}
