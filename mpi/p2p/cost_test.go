package p2p

import (
	"fmt"
	"testing"
	"time"
)

// queueCase is a queue state and a match whose cost is measured.
type queueCase struct {
	name string
	// fill queues other nodes; once queues, matches and removes one more.
	fill func(waiting int) (once func())
}

// queueCases are messages that match a receive, with wildcards and other receives before it,
// and receives that match a message.
func queueCases() (all []queueCase) {
	message := Envelope{Source: 7, Tag: 1 << 20}
	for w := range numWildcardSets {
		receive := message.masked(w)
		name := [...]string{"exact", "any source", "any tag", "any source and tag"}[w]
		all = append(all,
			queueCase{"posted " + name, func(waiting int) func() {
				var q Posted[int]
				for i := range waiting { // of other envelopes, some with wildcards
					e := Envelope{Source: int32(i % 100), Tag: int32(i)}
					if i%3 == 1 {
						e.Source = Any
					}
					q.Add(&Node[int]{Envelope: e})
				}
				n := &Node[int]{Envelope: receive}
				return func() {
					q.Add(n)
					q.Remove(q.Match(message))
				}
			}},
			queueCase{"unexpected " + name, func(waiting int) func() {
				var q Unexpected[int]
				for i := range waiting { // none matches the receive
					e := Envelope{Source: int32(i%100) + 10, Tag: int32(i)}
					if w&anySource == 0 && w&anyTag != 0 {
						e.Tag = message.Tag
					}
					e.Context = uint32(w / anySourceTag) // wildcards match the first
					q.Add(&Node[int]{Envelope: e})
				}
				n := &Node[int]{Envelope: message}
				return func() {
					q.Add(n)
					q.Remove(q.Match(receive))
				}
			}},
		)
	}
	// All nodes have the same envelope, and the first is matched.
	return append(all,
		queueCase{"posted, equal envelopes", func(waiting int) func() {
			var q Posted[int]
			for range waiting + 1 {
				q.Add(&Node[int]{Envelope: message})
			}
			return func() {
				n := q.Match(message)
				q.Remove(n)
				q.Add(n)
			}
		}},
		queueCase{"unexpected, equal envelopes", func(waiting int) func() {
			var q Unexpected[int]
			for range waiting + 1 {
				q.Add(&Node[int]{Envelope: message})
			}
			return func() {
				n := q.Match(Envelope{Source: Any, Tag: Any})
				q.Remove(n)
				q.Add(n)
			}
		}},
	)
}

const shortQueue, longQueue = 10, 10_000

// cost returns how many times longer a match takes in a long queue than in a short one, by the
// best of some runs, and its time in the long queue.
func (a *queueCase) cost(turns int) (ratio float64, each time.Duration) {
	const times = 1000
	short, long := a.fill(shortQueue), a.fill(longQueue)
	best := [2]time.Duration{time.Hour, time.Hour}
	for range turns {
		for i, once := range []func(){short, long} {
			began := time.Now()
			for range times {
				once()
			}
			best[i] = min(best[i], time.Since(began))
		}
	}
	return best[1].Seconds() / best[0].Seconds(), best[1] / times
}

// The cost of a match does not depend on the length of the queue.
func TestMatchCostIndependentOfQueueLength(t *testing.T) {
	const most = 10 // cache misses make a long queue somewhat slower
	for _, a := range queueCases() {
		ratio, each := a.cost(20)
		if ratio > most {
			t.Errorf("%s: %v with %d queued, %.1f times as long as with %d", a.name, each, longQueue, ratio, shortQueue)
		}
		t.Logf("%s: %v with %d queued, %.1f times as long as with %d", a.name, each, longQueue, ratio, shortQueue)
	}
}

// BenchmarkMatch reports the cost of a match, and its ratio to that in a short queue.
func BenchmarkMatch(b *testing.B) {
	for _, a := range queueCases() {
		b.Run(fmt.Sprintf("%s/queued=%d", a.name, longQueue), func(b *testing.B) {
			once := a.fill(longQueue)
			b.ReportAllocs()
			for b.Loop() {
				once()
			}
			ratio, _ := a.cost(20)
			b.ReportMetric(ratio, fmt.Sprintf("times-%d-queued", shortQueue))
		})
	}
}
