package mpi

import (
	"math/rand/v2"
	"time"

	"github.com/fabrictest/fabrictest/mpi"
)

var interleavingCases = []Case{{
	ID: "mpi/order/interleavings", Cite: rule("mpi/3.5/1", "mpi/3.5/2", "mpi/3.8.2/1", "mpi/3.8.4/3"),
	Title:   "Order holds whichever of send and receive is begun first, whatever their sizes and kinds are",
	Sends:   "messages both ways, small and large, begun at pseudorandom times, as are receives of all kinds, some of them cancelled",
	Expects: "each message in the receive whose turn it is",
	Defects: []string{"Overtakes", "PostedLastFirst", "UnexpectedLastFirst", "MprobeLeaves", "CancelKeepsPosted"}, Run: func(t *T) {
		x := &interleaving{T: t, random: rand.New(rand.NewPCG(1, uint64(t.Rank())))}
		for round := range 150 {
			x.tag = round / 10
			x.exchange(1 + round%12)
		}
	},
}}

// interleaving is a rank that exchanges messages with another rank, in pseudorandom order and at
// pseudorandom times. Message i goes to receive i, not counting cancelled receives.
type interleaving struct {
	*T
	random         *rand.Rand
	tag            int // of sends and receives
	sent, received int // number of sends and receives that were begun
}

// interleavedMax is the size of the largest message.
const interleavedMax = 60_000

// interleavedSize returns the size of message i. There are runs of small messages, of large ones,
// and of both.
func interleavedSize(i int) int {
	const run = 25
	large := i/run%3 > 0
	if mixed := i/run%3 == 1; mixed {
		large = i*i%3 > 0
	}
	switch {
	case !large:
		return i % 60
	case i%16 == 0:
		return interleavedMax
	default:
		return 1000 + i%60
	}
}

// interleavedData returns the content of message i of a rank.
func interleavedData(rank, i int) []byte { return data(2*i+rank, interleavedSize(i)) }

// exchange starts n sends and n receives in random order, and waits for them.
func (x *interleaving) exchange(n int) {
	var sends []Request
	waits := []func(){func() { x.waitAll(sends...) }}
	for _, k := range x.random.Perm(2 * n) {
		if k < n {
			sends = append(sends, x.send())
		} else {
			waits = append(waits, x.receive())
		}
		x.pause()
	}
	for _, k := range x.random.Perm(len(waits)) {
		waits[k]()
	}
}

// pause computes for a time in which none, some or all of the packets of a message may arrive.
func (x *interleaving) pause() {
	x.w.Compute(time.Duration(x.random.IntN(5)*x.random.IntN(5)) * time.Microsecond)
}

// send starts the next send.
func (x *interleaving) send() Request {
	d := interleavedData(x.Rank(), x.sent)
	x.sent++
	if x.random.IntN(4) == 0 {
		return x.issend(d, x.other(), x.tag)
	}
	return x.isend(d, x.other(), x.tag)
}

// receive starts the next receive, of a random kind, and returns a function that waits for it and
// checks the message.
func (x *interleaving) receive() (wait func()) {
	want := interleavedData(x.other(), x.received)
	n := interleavedMax
	if x.random.IntN(8) == 0 {
		n = len(want)
	}
	source, tag := x.other(), x.tag
	sentTag := tag
	r := (*pending)(nil)
	switch x.random.IntN(24) {
	case 0:
		source = mpi.AnySource
	case 1:
		tag = mpi.AnyTag
	case 2:
		if x.receiveOrCancel(n, want) {
			x.received++
			return func() {}
		}
	case 3:
		r = x.receiveProbed(n)
	}
	if r == nil {
		r = x.irecv(n, source, tag)
	}
	x.received++
	return func() { x.expectStatus("the receive", x.expectWait(r, want), x.other(), sentTag, len(want)) }
}

// receiveOrCancel starts a receive and cancels it. It reports whether the message, which must be
// want, has arrived before.
func (x *interleaving) receiveOrCancel(n int, want []byte) (arrived bool) {
	r := x.irecv(n, x.other(), x.tag)
	x.pause()
	x.must("Cancel", r.Cancel())
	if x.wait(r).Cancelled {
		x.expectBuffer("the buffer of a cancelled receive", r.recvBuf, nil)
		return false
	}
	x.expectBuffer("a message that arrived before Cancel", r.recvBuf, want)
	return true
}

// receiveProbed starts to receive a message that has arrived. It returns nil if there is none.
func (x *interleaving) receiveProbed(n int) *pending {
	m, _, found, err := x.Improbe(x.other(), x.tag)
	x.must("Improbe", err)
	if !found {
		return nil
	}
	x.pause()
	room := newGuardedBuf(n)
	return &pending{started(m.Irecv(room.buf))(x.T, "Message.Irecv"), room}
}
