package workload

import (
	"encoding/binary"

	"github.com/fabrictest/fabrictest/verbs"
)

// adder adds 1 to a word of the peer's with an atomic, as often as the workload
// wants. Others add to the same word. An atomic that failed may have been done
// or not, so that failures leave a range for what the word must hold.
type adder struct {
	c      *conn
	total  int
	wanted int // so far

	posted  int // over all epochs
	done    int // completed
	settled int // completed or lost
	words   []seenWord
}

// seenWord is what is known of a word of the peer's: it has one on each rail.
type seenWord struct {
	done int    // atomics of ours that have completed
	last uint64 // what the last one found
}

const (
	wordLen = 8
	maxAdds = 4 // outstanding
)

func (a *adder) complete() bool { return a.posted == a.total && a.settled == a.posted }

func (a *adder) pump() (moved bool) {
	c := a.c
	for a.posted < a.wanted && a.posted-a.settled < maxAdds && c.sq.room() > 1 && !c.sq.full() {
		wr := c.sq.add(requestAdd, a.posted, verbs.OpAtomicFetchAdd)
		wr.Remote = verbs.Remote{Addr: c.peerCard.Word, RKey: c.peerCard.WordKey}
		wr.Atomic.CompareAdd = 1
		c.sq.use(c.mem.sge(a.result(a.posted), wordLen))
		a.posted++
		moved = true
	}
	return moved
}

func (a *adder) result(n int) int { return a.c.layout.results + n%maxAdds*wordLen }

// settle takes an atomic that has completed: our own adds alone make the word
// grow from one to the next.
func (a *adder) settle(n int) {
	a.done++
	a.settled = n + 1
	at := a.result(n)
	got := binary.LittleEndian.Uint64(a.c.mem.buf[at:])
	w := &a.words[a.c.rail.num]
	if w.done > 0 && got <= w.last || got < uint64(w.done) {
		a.c.violation(Contents, "atomic %d found %d in the peer's word, after one before it had added to %d", n, got, w.last)
	}
	w.done++
	w.last = got
}

// resume gives up on atomics whose fate is not known.
func (a *adder) resume() { a.settled = a.posted }

// verifyWords compares the rank's words with what the peers say they added. It
// can do so only if all of them had the time to say.
func (n *node) verifyWords() {
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
		n.log.violation(Contents, "memory of %s: atomics left %d in its words, want %d to %d", hostOf(n.rank.Rank), sum, least, most)
	}
}
