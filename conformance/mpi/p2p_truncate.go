package mpi

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/mpi"
)

// expectTruncated ends the rank unless a receive failed because its message is too long, and
// the bytes that its status counts are the beginning of the message.
func (t *T) expectTruncated(what string, r *guardedBuf, st Status, err error, whole []byte) {
	t.mustFail(what, err, mpi.ErrTruncate)
	t.check(st.Count >= 0 && st.Count <= len(r.buf), fmt.Sprintf("a count of at most %d", len(r.buf)), "%+v", st)
	t.expectEqual("what was received of the message", r.buf[:st.Count], whole[:st.Count])
	for i, b := range r.all {
		if in := i - guardLen; (in < 0 || in >= len(r.buf)) && b != guardByte {
			t.check(false, "nothing written outside of the buffer", "byte %d written, of a buffer of %d", in, len(r.buf))
		}
	}
}

// tooLong is a case of a message that is longer than the buffer of its receive.
func tooLong(n, room int, posted bool) func(*T) {
	return func(t *T) {
		t.onRank(0, func() {
			t.awaitSignal(1)
			a, b := t.isend(data(1, n), 1, 3), t.isend(data(2, 40), 1, 3)
			t.waitAll(a, b)
			t.signal(1)
		})
		t.onRank(1, func() {
			if !posted {
				t.signal(0)
				t.idle()
			}
			r := newGuardedBuf(room)
			req := started(t.Irecv(r.buf, 0, 3))(t, "Irecv")
			if posted {
				t.signal(0)
			}
			st, err := req.Wait()
			t.expectTruncated("a receive that is too short", r, st, err, data(1, n))
			t.expectRecv(data(2, 40), 0, 3)
			t.awaitSignal(0)
		})
		t.expectUsable()
	}
}

var truncatePrograms = programs{
	"mpi/truncate/posted":           tooLong(100, 60, true),
	"mpi/truncate/unexpected":       tooLong(100, 60, false),
	"mpi/truncate/large-posted":     tooLong(largeSize, largeSize/3, true),
	"mpi/truncate/large-unexpected": tooLong(largeSize, largeSize-1, false),
	"mpi/truncate/large-into-small": tooLong(largeSize, 64, true),
	"mpi/truncate/no-room-at-all":   tooLong(1, 0, true),
	"mpi/truncate/shorter-is-fine": func(t *T) {
		for i, n := range allSizes() {
			if n > largeSize {
				break
			}
			t.onRank(0, func() { t.send(data(i, n), 1, 1) })
			t.onRank(1, func() {
				t.expectStatus("the receive", t.expectWait(t.irecv(2*n+5, 0, 1), data(i, n)), 0, 1, n)
			})
		}
	},
	"mpi/truncate/blocking-calls": func(t *T) {
		whole := data(4, 30)
		t.onRank(0, func() {
			t.send(whole, 1, 1)
			t.send(whole, 1, 2)
		})
		t.onRank(1, func() {
			r := newGuardedBuf(20)
			st, err := t.Recv(r.buf, 0, 1)
			t.expectTruncated("Recv", r, st, err, whole)
			m, _, err := t.Mprobe(0, 2)
			t.must("Mprobe", err)
			r = newGuardedBuf(20)
			st, err = m.Recv(r.buf)
			t.expectTruncated("Message.Recv", r, st, err, whole)
		})
		r := newGuardedBuf(20)
		st, err := t.Sendrecv(whole, t.other(), 3, r.buf, t.other(), 3)
		t.expectTruncated("Sendrecv", r, st, err, whole)
		t.expectUsable()
	},
	"mpi/truncate/one-of-many": func(t *T) {
		t.onRank(0, func() {
			t.awaitSignal(1)
			for i := range 5 {
				t.send(data(i, 50), 1, i)
			}
		})
		t.onRank(1, func() {
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
		})
		t.expectUsable()
	},
	"mpi/truncate/persistent-goes-on": byRank(func(t *T) {
		t.send(data(1, 30), 1, 1)
		t.send(data(2, 20), 1, 1)
	}, func(t *T) {
		r := newGuardedBuf(20)
		req := started(t.RecvInit(r.buf, 0, 1))(t, "RecvInit")
		t.must("Start", req.Start())
		st, err := req.Wait()
		t.expectTruncated("the first", r, st, err, data(1, 30))
		t.must("Start", req.Start())
		t.expectWait(&pending{req, r}, data(2, 20))
	}),
}
