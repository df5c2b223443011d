package mpi

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/mpi"
)

// expectTruncated ends the rank unless a receive failed because its message is too long, and
// the bytes that its status counts are the beginning of the message.
func (t *T) expectTruncated(name string, r *guardedBuf, st Status, err error, message []byte) {
	t.mustFail(name, err, mpi.ErrTruncate)
	t.check(st.Count >= 0 && st.Count <= len(r.buf), fmt.Sprintf("a count of at most %d", len(r.buf)), "%+v", st)
	t.expectEqual("the received part of the message", r.buf[:st.Count], message[:st.Count])
	t.expectUnwritten("the buffer", r, len(r.buf))
}

// Whether the receive of tooLong is posted before the message is sent.
const posted, unexpected = true, false

// tooLong returns the body of a case: rank 0 sends n bytes, and rank 1 receives into the smaller
// recvLen bytes. If isPosted is true, the receive is posted before the send. The next message,
// which fits, and the communicator must not be affected.
func tooLong(n, recvLen int, isPosted bool) func(*T) {
	return func(t *T) {
		if t.Rank() == 0 {
			t.awaitSignal(1)
			t.waitAll(t.isend(data(1, n), 1, 3), t.isend(data(2, 40), 1, 3))
			t.signal(1)
		} else {
			if !isPosted {
				t.signal(0)
				t.idle()
			}
			p := t.irecv(recvLen, 0, 3)
			if isPosted {
				t.signal(0)
			}
			st, err := p.Wait()
			t.expectTruncated("a receive that is too short", p.recvBuf, st, err, data(1, n))
			t.expectRecv(data(2, 40), 0, 3)
			t.awaitSignal(0)
		}
		t.expectUsable()
	}
}

var truncateCases = []Case{{
	ID: "mpi/truncate/posted", Cite: rule("mpi/3.2.4/3"),
	Title:   "A message that is longer than the buffer of the receive that waits for it is an error there, and of nothing else",
	Sends:   "100 bytes to a posted receive of 60, and another message behind it",
	Expects: "ErrTruncate; the send succeeds, the next message arrives",
	Defects: []string{"TruncatesSilently", "TruncateCountsAll"}, Run: tooLong(100, 60, posted),
}, {
	ID: "mpi/truncate/unexpected", Cite: rule("mpi/3.2.4/3"),
	Title:   "A message that is longer than the buffer of a later receive is an error there, and of nothing else",
	Sends:   "the same with a receive that comes late",
	Expects: "the same",
	Defects: []string{"TruncatesSilently", "TruncateWedges"}, Run: tooLong(100, 60, unexpected),
}, {
	ID: "mpi/truncate/large-posted", Cite: rule("mpi/3.2.4/3"),
	Title:   "A large message that is longer than the posted receive is an error there, and of nothing else",
	Sends:   "a large message to a posted receive of a third of it",
	Expects: "the same",
	Defects: []string{"TruncatesSilently", "TruncateKeepsRest"}, Run: tooLong(largeSize, largeSize/3, posted),
}, {
	ID: "mpi/truncate/large-unexpected", Cite: rule("mpi/3.2.4/3"),
	Title:   "A large message that is longer than a later receive is an error there, and of nothing else",
	Sends:   "a large message to a late receive that is one byte too short",
	Expects: "the same",
	Defects: []string{"TruncatesSilently", "TruncateFailsSender"}, Run: tooLong(largeSize, largeSize-1, unexpected),
}, {
	ID: "mpi/truncate/large-into-small", Cite: rule("mpi/3.2.4/3"),
	Title:   "A large message to a receive of a few bytes is an error there, and of nothing else",
	Sends:   "a large message to a posted receive of 64 bytes",
	Expects: "the same",
	Defects: []string{"TruncatesSilently", "TruncateKeepsRest"}, Run: tooLong(largeSize, 64, posted),
}, {
	ID: "mpi/truncate/no-room-at-all", Cite: rule("mpi/3.2.4/3"),
	Title:   "A receive without room fails when the message has data",
	Sends:   "one byte, and then a large message, to a receive of none",
	Expects: "ErrTruncate of each",
	Defects: []string{"TruncatesSilently"}, Run: func(t *T) {
		tooLong(1, 0, posted)(t)
		tooLong(largeSize, 0, posted)(t)
	},
}, {
	ID: "mpi/truncate/by-one-byte", Cite: rule("mpi/3.2.4/3", "mpi/3.2.4/4"),
	Title:   "One byte too many is an error, and a message as long as the buffer is none, at every limit of eager messages",
	Sends:   "messages of sizes around such limits to receives of one byte less, posted and late by turns, and of the same size",
	Expects: "ErrTruncate of the former; every byte of the latter",
	Defects: []string{"TruncatesOneByte"}, Run: func(t *T) {
		for i, n := range limitSizes[1:] {
			tooLong(n, n-1, i%2 == 0)(t)
			t.onRank(0, func() { t.send(data(i, n), 1, 4) })
			t.onRank(1, func() { t.expectWait(t.irecv(n, 0, 4), data(i, n)) })
		}
	},
}, {
	ID: "mpi/truncate/shorter-is-fine", Cite: rule("mpi/3.2.4/4"),
	Title:   "A message that is shorter than the buffer leaves the rest of it alone",
	Sends:   "messages of several sizes to receives with twice the room",
	Expects: "the count of the message, and nothing written behind it",
	Defects: []string{"BufferWiped", "CountIsRoom"}, Run: onSizes(sizesUpTo(largeSize), sendSize, func(t *T, i, n int) {
		t.expectStatus("the receive", t.expectWait(t.irecv(2*n+5, 0, i), data(i, n)), 0, i, n)
	}),
}, {
	ID: "mpi/truncate/blocking-calls", Cite: rule("mpi/3.2.4/3"),
	Title:   "Recv, Sendrecv and a matched receive tell a truncation as well, and no later receive does",
	Sends:   "30 bytes to receives of 20, by three calls, and to a matched receive of 30 after the first",
	Expects: "ErrTruncate of the three; the message of the other",
	Defects: []string{"TruncatesSilently"}, Run: func(t *T) {
		whole := data(4, 30)
		if t.Rank() == 0 {
			t.send(whole, 1, 1)
			t.send(data(5, 30), 1, 2)
			t.send(whole, 1, 2)
		} else {
			r := newGuardedBuf(20)
			st, err := t.Recv(r.buf, 0, 1)
			t.expectTruncated("Recv", r, st, err, whole)
			m, _ := result2(t.Mprobe(0, 2))(t, "Mprobe")
			t.expectMessage(m, data(5, 30))
			m, _ = result2(t.Mprobe(0, 2))(t, "Mprobe")
			r = newGuardedBuf(20)
			st, err = m.Recv(r.buf)
			t.expectTruncated("Message.Recv", r, st, err, whole)
		}
		r := newGuardedBuf(20)
		st, err := t.Sendrecv(whole, t.other(), 3, r.buf, t.other(), 3)
		t.expectTruncated("Sendrecv", r, st, err, whole)
		t.expectUsable()
	},
}, {
	ID: "mpi/truncate/one-of-many", Cite: rule("mpi/3.7.5/5", "mpi/3.2.4/3"),
	Title:   "Of several requests only the one whose message is too long fails",
	Sends:   "WaitAll over five receives, of which the second is too short",
	Expects: "an error of the second alone; the others have their messages",
	Defects: []string{"SeveralSwallowErrors", "ErrorOfTheWrong", "WaitAllEndsAtError"}, Run: func(t *T) {
		if t.Rank() == 0 {
			t.awaitSignal(1)
			for i := range 5 {
				t.send(data(i, 50), 1, i)
			}
		} else {
			ps, rs := startReceives(5, func(i int) *pending { return t.irecv([]int{50, 10, 50, 50, 50}[i], 0, i) })
			t.signal(0)
			sts, err := t.w.WaitAll(rs)
			var several *mpi.RequestsError
			t.check(errors.As(err, &several), "a *RequestsError of WaitAll", "%v", err)
			t.check(len(several.Errs) == 5 && len(sts) == 5, "an error and a status for each of five requests", "%d and %d", len(several.Errs), len(sts))
			for i, e := range several.Errs {
				if i == 1 {
					t.expectTruncated("the second request", ps[i].recvBuf, sts[i], e, data(i, 50))
					continue
				}
				t.must("another request", e)
				t.expectStatus("another receive", sts[i], 0, i, 50)
				t.expectBuffer("another message", ps[i].recvBuf, data(i, 50))
			}
		}
		t.expectUsable()
	},
}, {
	ID: "mpi/truncate/persistent-goes-on", Cite: rule("mpi/3.9/1", "mpi/3.2.4/3"),
	Title:   "A persistent receive whose message was too long can be started again",
	Sends:   "a persistent receive of 20 bytes, started for messages of 30 and of 20",
	Expects: "ErrTruncate, then the message",
	Defects: []string{"TruncatesSilently", "PersistentOnce"}, Run: byRank(func(t *T) {
		t.send(data(1, 30), 1, 1)
		t.send(data(2, 20), 1, 1)
	}, func(t *T) {
		p := t.recvInit(20, 0, 1)
		t.start(p)
		st, err := p.Wait()
		t.expectTruncated("the first", p.recvBuf, st, err, data(1, 30))
		t.start(p)
		t.expectWait(p, data(2, 20))
	}),
}}
