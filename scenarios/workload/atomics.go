package workload

import (
	"encoding/binary"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// atomicAdder adds 1 to a word of the peer with fetch-and-add, as often as the workload
// wants. Other ranks add to the same word. A failed atomic may have been executed,
// therefore failures leave a range for the final value.
type atomicAdder struct {
	link    *link
	total   int
	allowed int // by the workload, so far

	posted    int // over all epochs
	completed int // with success
	resolved  int // completed or failed
	peerWords []wordState
}

// wordState is the state of a word of the peer, which has one on each rail.
type wordState struct {
	completed int    // atomics of this rank
	lastOld   uint64 // old value that the last one returned
}

const (
	wordLen = 8
	maxAdds = 4 // outstanding
)

func (a *atomicAdder) complete() bool { return a.posted == a.total && a.resolved == a.posted }

func (a *atomicAdder) pump() (moved bool) {
	c := a.link
	for a.posted < a.allowed && a.posted-a.resolved < maxAdds && c.sq.Room() > 1 && !c.sq.Full() {
		r := traffic.Request{Kind: requestAdd, Seq: a.posted, Op: verbs.OpAtomicFetchAdd, Returns: wordLen}
		wr := c.sq.Add(r, c.mem.sge(a.result(a.posted), wordLen))
		wr.Remote = verbs.Remote{Addr: c.peerInfo.Word, RKey: c.peerInfo.WordKey}
		wr.Atomic.CompareAdd = 1
		a.posted++
		moved = true
	}
	return moved
}

func (a *atomicAdder) result(n int) int { return a.link.results + n%maxAdds*wordLen }

// handleCompletion checks the old value of a completed atomic: it grows with every atomic
// of this rank.
func (a *atomicAdder) handleCompletion(n int) {
	a.completed++
	a.resolved = n + 1
	at := a.result(n)
	got := binary.LittleEndian.Uint64(a.link.mem.buf[at:])
	w := &a.peerWords[a.link.rail.num]
	if w.completed > 0 && got <= w.lastOld || got < uint64(w.completed) {
		a.link.violation(traffic.Contents, "atomic %d returned the old value %d, after an earlier one returned %d", n, got, w.lastOld)
	}
	w.completed++
	w.lastOld = got
}

// abandonOutstanding gives up atomics whose result is unknown.
func (a *atomicAdder) abandonOutstanding() { a.resolved = a.posted }

// verifyAtomics compares the words of this rank with the atomics that the peers report.
// Without a report of every peer it checks nothing.
func (n *node) verifyAtomics() {
	least, most := 0, 0
	for _, c := range n.conns {
		if c.add == nil || !c.finished() {
			return
		}
		least += c.peerFinal.AddsProven
		most += c.peerFinal.Adds
	}
	sum := uint64(0)
	for _, r := range n.rails {
		if r.word == nil {
			return
		}
		sum += binary.LittleEndian.Uint64(r.word.buf)
		n.log.checked += wordLen
	}
	if sum < uint64(least) || sum > uint64(most) {
		n.log.violation(traffic.Contents, "memory of %s: atomics add up to %d, want %d to %d", n.host(), sum, least, most)
	}
}
