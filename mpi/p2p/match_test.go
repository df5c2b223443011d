package p2p

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// model is the reference: both queues in order, searched linearly.
type model struct{ posted, unexpected []*Node[int] }

func removeFirst(q *[]*Node[int], matches func(*Node[int]) bool) *Node[int] {
	i := slices.IndexFunc(*q, matches)
	if i < 0 {
		return nil
	}
	n := (*q)[i]
	*q = slices.Delete(*q, i, i+1)
	return n
}

// In random orders of messages, receives and cancels, the queues match like a linear search.
func TestQueuesMatchInOrder(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 7))
		var posted Posted[int]
		var unexpected Unexpected[int]
		var m model
		orAny := func(n int) int32 {
			if r.IntN(4) == 0 {
				return Any
			}
			return int32(r.IntN(n))
		}
		for step := range 2000 {
			switch r.IntN(5) {
			case 0, 1: // a message arrives
				e := Envelope{uint32(r.IntN(2)), int32(r.IntN(3)), int32(r.IntN(3))}
				want := removeFirst(&m.posted, func(n *Node[int]) bool { return n.Envelope.matches(e) })
				got := posted.Match(e)
				if got != want {
					t.Fatalf("seed %d, step %d: message %v matches %v, want %v", seed, step, e, got, want)
				}
				if got != nil {
					posted.Remove(got)
					continue
				}
				n := &Node[int]{Envelope: e, Value: step}
				unexpected.Add(n)
				m.unexpected = append(m.unexpected, n)
			case 2, 3: // a receive is posted
				e := Envelope{uint32(r.IntN(2)), orAny(3), orAny(3)}
				want := removeFirst(&m.unexpected, func(n *Node[int]) bool { return e.matches(n.Envelope) })
				got := unexpected.Match(e)
				if got != want {
					t.Fatalf("seed %d, step %d: receive %v matches %v, want %v", seed, step, e, got, want)
				}
				if got != nil {
					unexpected.Remove(got)
					continue
				}
				n := &Node[int]{Envelope: e, Value: step}
				posted.Add(n)
				m.posted = append(m.posted, n)
			case 4: // a receive is cancelled
				if len(m.posted) == 0 {
					continue
				}
				i := r.IntN(len(m.posted))
				posted.Remove(m.posted[i])
				m.posted = slices.Delete(m.posted, i, i+1)
			}
			e := Envelope{uint32(r.IntN(2)), int32(r.IntN(3)), int32(r.IntN(3))}
			var last *Node[int]
			wild := false
			for _, n := range m.posted {
				if n.Envelope == e {
					last = n
				} else {
					wild = wild || n.Envelope.matches(e)
				}
			}
			if posted.Last(e) != last || posted.HasWildcardMatch(e) != wild {
				t.Fatalf("seed %d, step %d: the last receive of %v is %v, with wildcards %v", seed, step, e, posted.Last(e), posted.HasWildcardMatch(e))
			}
			if posted.Len() != len(m.posted) || unexpected.Len() != len(m.unexpected) {
				t.Fatalf("seed %d, step %d: %d and %d are queued, want %d and %d", seed, step, posted.Len(), unexpected.Len(), len(m.posted), len(m.unexpected))
			}
		}
	}
}

// matches reports whether a receive with the envelope e matches a message.
func (e Envelope) matches(message Envelope) bool {
	return e.Context == message.Context && (e.Source == Any || e.Source == message.Source) && (e.Tag == Any || e.Tag == message.Tag)
}

func TestUniqueTagsDoNotGrowIndex(t *testing.T) {
	var q Unexpected[int]
	for i := range int32(20 * maxEmptyLists) {
		n := &Node[int]{Envelope: Envelope{Source: 1, Tag: i}}
		q.Add(n)
		q.Remove(n)
	}
	for w := range numWildcardSets {
		if n := len(q.byWildcards[w].lists); n > maxEmptyLists {
			t.Errorf("%d lists are kept", n)
		}
	}
}

func TestAddPanicsForQueuedNode(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a node was queued twice")
		}
	}()
	var q Posted[int]
	n := new(Node[int])
	q.Add(n)
	q.Add(n)
}
