package mpi

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/mpi"
)

// cut ends the rank unless a receive was told that its message is too long, and what the
// buffer has, as far as the status says it has something, is the beginning of the message.
func (t *T) cut(what string, r *room, st Status, err error, whole []byte) {
	t.fails(what, err, mpi.ErrTruncate)
	t.check(st.Count >= 0 && st.Count <= len(r.buf), fmt.Sprintf("a count of at most %d", len(r.buf)), "%+v", st)
	t.same("what was received of the message", r.buf[:st.Count], whole[:st.Count])
	for i, b := range r.all {
		if in := i - guard; (in < 0 || in >= len(r.buf)) && b != blank {
			t.check(false, "nothing written outside of the buffer", "byte %d written, of a buffer of %d", in, len(r.buf))
		}
	}
}

// tooLong is a case of a message that is longer than the buffer of its receive.
func tooLong(n, room int, posted bool) func(*T) {
	return func(t *T) {
		t.only(0, func() {
			t.hear(1)
			a, b := t.isend(data(1, n), 1, 3), t.isend(data(2, 40), 1, 3)
			t.waitAll(a, b)
			t.tell(1)
		})
		t.only(1, func() {
			if !posted {
				t.tell(0)
				t.linger()
			}
			r := newRoom(room)
			req, err := t.Irecv(r.buf, 0, 3)
			t.begin("Irecv", req, err)
			if posted {
				t.tell(0)
			}
			st, err := req.Wait()
			t.cut("a receive that is too short", r, st, err, data(1, n))
			t.gets(data(2, 40), 0, 3)
			t.hear(0)
		})
		t.stillWorks()
	}
}

var truncateCases = []Case{{
	ID: "mpi/truncate/posted", Title: "A message that is longer than the buffer of the receive that waits for it is an error there, and of nothing else",
	Cite: rule("3.2.4", "mpi/3.2.4/3"), Defects: []string{"TruncatesSilently", "TruncateCountsAll"},
	Sends: "100 bytes to a posted receive of 60, and another message behind it", Expects: "ErrTruncate; the send succeeds, the next message arrives",
	Run: tooLong(100, 60, true),
}, {
	ID: "mpi/truncate/unexpected", Title: "A message that is longer than the buffer of a later receive is an error there, and of nothing else",
	Cite: rule("3.2.4", "mpi/3.2.4/3"), Defects: []string{"TruncatesSilently", "TruncateWedges"},
	Sends: "the same with a receive that comes late", Expects: "the same",
	Run: tooLong(100, 60, false),
}, {
	ID: "mpi/truncate/large-posted", Title: "A large message that is longer than the posted receive is an error there, and of nothing else",
	Cite: rule("3.2.4", "mpi/3.2.4/3"), Defects: []string{"TruncatesSilently", "TruncateKeepsRest"},
	Sends: "a large message to a posted receive of a third of it", Expects: "the same",
	Run: tooLong(large, large/3, true),
}, {
	ID: "mpi/truncate/large-unexpected", Title: "A large message that is longer than a later receive is an error there, and of nothing else",
	Cite: rule("3.2.4", "mpi/3.2.4/3"), Defects: []string{"TruncatesSilently", "TruncateFailsSender"},
	Sends: "a large message to a late receive that is one byte too short", Expects: "the same",
	Run: tooLong(large, large-1, false),
}, {
	ID: "mpi/truncate/large-into-small", Title: "A large message to a receive of a few bytes is an error there, and of nothing else",
	Cite: rule("3.2.4", "mpi/3.2.4/3"), Defects: []string{"TruncatesSilently", "TruncateKeepsRest"},
	Sends: "a large message to a posted receive of 64 bytes", Expects: "the same",
	Run: tooLong(large, 64, true),
}, {
	ID: "mpi/truncate/no-room-at-all", Title: "A receive without room fails when the message has data",
	Cite: rule("3.2.4", "mpi/3.2.4/3"), Defects: []string{"TruncatesSilently"},
	Sends: "one byte to a receive of none", Expects: "ErrTruncate",
	Run: tooLong(1, 0, true),
}, {
	ID: "mpi/truncate/shorter-is-fine", Title: "A message that is shorter than the buffer leaves the rest of it alone",
	Cite: rule("3.2.4", "mpi/3.2.4/4"), Defects: []string{"BufferWiped", "CountIsRoom"},
	Sends: "messages of several sizes to receives with twice the room", Expects: "the count of the message, and nothing written behind it",
	Run: func(t *T) {
		for i, n := range every() {
			if n > large {
				break
			}
			t.only(0, func() { t.send(data(i, n), 1, 1) })
			t.only(1, func() {
				t.is("the receive", t.arrives(t.irecv(2*n+5, 0, 1), data(i, n)), 0, 1, n)
			})
		}
	},
}, {
	ID: "mpi/truncate/blocking-calls", Title: "Recv, Sendrecv and a matched receive tell a truncation as well",
	Cite: rule("3.2.4", "mpi/3.2.4/3"), Defects: []string{"TruncatesSilently"},
	Sends: "30 bytes to receives of 20, by three calls", Expects: "ErrTruncate of each",
	Run: func(t *T) {
		other := 1 - t.Rank()
		whole := data(4, 30)
		t.only(0, func() {
			t.send(whole, 1, 1)
			t.send(whole, 1, 2)
		})
		t.only(1, func() {
			r := newRoom(20)
			st, err := t.Recv(r.buf, 0, 1)
			t.cut("Recv", r, st, err, whole)
			m, _, err := t.Mprobe(0, 2)
			t.ok("Mprobe", err)
			r = newRoom(20)
			st, err = m.Recv(r.buf)
			t.cut("Message.Recv", r, st, err, whole)
		})
		r := newRoom(20)
		st, err := t.Sendrecv(whole, other, 3, r.buf, other, 3)
		t.cut("Sendrecv", r, st, err, whole)
		t.stillWorks()
	},
}, {
	ID: "mpi/truncate/one-of-many", Title: "Of several requests only the one whose message is too long fails",
	Cite:    rule("3.7.5", "mpi/3.7.5/5", "mpi/3.2.4/3"),
	Defects: []string{"SeveralSwallowErrors", "ErrorOfTheWrong", "WaitAllEndsAtError"},
	Sends:   "WaitAll over five receives, of which the second is too short", Expects: "an error of the second alone; the others have their messages",
	Run: func(t *T) {
		t.only(0, func() {
			t.hear(1)
			for i := range 5 {
				t.send(data(i, 50), 1, i)
			}
		})
		t.only(1, func() {
			var ps []*pending
			var rs []Request
			for i := range 5 {
				n := 50
				if i == 1 {
					n = 10
				}
				ps = append(ps, t.irecv(n, 0, i))
				rs = append(rs, ps[i].Request)
			}
			t.tell(0)
			sts, err := t.w.WaitAll(rs)
			var several *mpi.RequestsError
			t.check(errors.As(err, &several), "a *RequestsError of WaitAll", "%v", err)
			t.check(len(several.Errs) == 5 && len(sts) == 5, "an error and a status for each of five requests", "%d and %d", len(several.Errs), len(sts))
			for i, e := range several.Errs {
				if i == 1 {
					t.cut("the second request", ps[i].room, sts[i], e, data(i, 50))
					continue
				}
				t.ok("another request", e)
				t.is("another receive", sts[i], 0, i, 50)
				t.holds("another message", ps[i].room, data(i, 50))
			}
		})
		t.stillWorks()
	},
}, {
	ID: "mpi/truncate/persistent-goes-on", Title: "A persistent receive whose message was too long can be started again",
	Cite: rule("3.9", "mpi/3.9/1", "mpi/3.2.4/3"), Defects: []string{"TruncatesSilently", "PersistentOnce"},
	Sends: "a persistent receive of 20 bytes, started for messages of 30 and of 20", Expects: "ErrTruncate, then the message",
	Run: func(t *T) {
		t.only(0, func() {
			t.send(data(1, 30), 1, 1)
			t.send(data(2, 20), 1, 1)
		})
		t.only(1, func() {
			r := newRoom(20)
			req, err := t.RecvInit(r.buf, 0, 1)
			t.begin("RecvInit", req, err)
			t.ok("Start", req.Start())
			st, err := req.Wait()
			t.cut("the first", r, st, err, data(1, 30))
			t.ok("Start", req.Start())
			t.arrives(&pending{req, r}, data(2, 20))
		})
	},
}}
