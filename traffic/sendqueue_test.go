package traffic

import (
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// postedQP records the requests that were posted to it.
type postedQP struct {
	verbs.QP
	wrs []verbs.SendWR
}

func (q *postedQP) QPN() verbs.QPN { return 7 }

func (q *postedQP) PostSend(wrs []verbs.SendWR) (int, error) {
	q.wrs = append(q.wrs, wrs...)
	return len(wrs), nil
}

// twoBatches returns a queue with requests 0 to 2 and 3 to 4 posted.
func twoBatches(t *testing.T) (*SendQueue, *postedQP) {
	t.Helper()
	qp := new(postedQP)
	q := NewSendQueue(8)
	q.Attach(qp, 9)
	for i := range 5 {
		q.Add(Request{Seq: i, Op: verbs.OpRDMARead, Returns: 4}, verbs.SGE{Length: 4})
		if i == 2 || i == 4 {
			must.Do(t, q.Flush())
		}
	}
	return q, qp
}

func TestSendQueueSignalsLastRequestOfBatch(t *testing.T) {
	q, qp := twoBatches(t)
	for i, wr := range qp.wrs {
		if signaled := wr.Flags&verbs.SendSignaled != 0; signaled != (i == 2 || i == 4) || wr.WRID != 9<<32|uint64(i) {
			t.Errorf("request %d: flags %#x, ID %#x", i, wr.Flags, wr.WRID)
		}
	}
	if q.Outstanding() != 5 || q.Room() != 2 {
		t.Errorf("%d outstanding, room for %d", q.Outstanding(), q.Room())
	}
}

func TestSendQueueChecksCompletions(t *testing.T) {
	good := func(n uint64) verbs.WC {
		return verbs.WC{WRID: 9<<32 | n, QPN: 7, Opcode: verbs.WCOpRDMARead, ByteLen: 4}
	}
	with := func(wc verbs.WC, f func(*verbs.WC)) verbs.WC { f(&wc); return wc }
	for _, tc := range []struct {
		name string
		wcs  []verbs.WC
		done []int
		err  string // of the last completion
	}{
		{"in order", []verbs.WC{good(2), good(4)}, []int{0, 1, 2, 3, 4}, ""},
		{"later first", []verbs.WC{good(4)}, []int{0, 1, 2, 3, 4}, "request 4 completed before request 2"},
		{"twice", []verbs.WC{good(2), good(2)}, []int{0, 1, 2}, "request 2 completed, but only 3 to 4 are outstanding"},
		{"unknown", []verbs.WC{good(5)}, nil, "request 5 completed"},
		{"another queue pair", []verbs.WC{with(good(2), func(wc *verbs.WC) { wc.QPN++ })}, []int{0, 1, 2}, "names queue pair 0x8"},
		{"another operation", []verbs.WC{with(good(2), func(wc *verbs.WC) { wc.Opcode = verbs.WCOpSend })}, []int{0, 1, 2}, "completed as"},
		{"another length", []verbs.WC{with(good(2), func(wc *verbs.WC) { wc.ByteLen++ })}, []int{0, 1, 2}, "with 5 bytes"},
	} {
		q, _ := twoBatches(t)
		var done []int
		var err error
		for i := range tc.wcs {
			_, err = q.Complete(&tc.wcs[i], func(r Request) { done = append(done, r.Seq) })
		}
		if !slices.Equal(done, tc.done) || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: %v completed, %v; want %v, %q", tc.name, done, err, tc.done, tc.err)
		}
	}
}

// The marker completes after all requests, which may be flushed.
func TestSendQueueDrains(t *testing.T) {
	q, qp := twoBatches(t)
	if err := q.Drain(); err != nil || !q.Draining() {
		t.Fatal(err)
	}
	for i := range qp.wrs {
		wc := verbs.WC{WRID: qp.wrs[i].WRID, QPN: 7, Status: verbs.WCWRFlushErr}
		status, err := q.Complete(&wc, func(r Request) { t.Errorf("request %d succeeded", r.Seq) })
		if err != nil || (status == verbs.WCWRFlushErr) != (i < 5) {
			t.Errorf("request %d: %v, %v", i, status, err)
		}
	}
	if q.Draining() || q.Outstanding() != 0 {
		t.Error("not drained")
	}
}

func TestSendQueueDoesNotAllocate(t *testing.T) {
	qp := &postedQP{wrs: make([]verbs.SendWR, 0, 8)}
	q := NewSendQueue(8)
	q.Attach(qp, 1)
	done := func(Request) {}
	if n := testing.AllocsPerRun(100, func() {
		qp.wrs = qp.wrs[:0]
		for i := range 4 {
			q.Add(Request{Seq: i, Op: verbs.OpSend}, verbs.SGE{Length: 1})
		}
		must.Do(t, q.Flush())
		wc := verbs.WC{WRID: qp.wrs[3].WRID, QPN: 7, Opcode: verbs.WCOpSend}
		must.Get(q.Complete(&wc, done))(t)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
