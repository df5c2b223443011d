package rig

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Completion returns the next completion of r.CQ, for which it waits.
func (r *Rig) Completion() verbs.WC {
	wc, ok := r.WaitCompletion(r.Patience())
	if !ok {
		r.Fail("a completion", "none in %v", r.Patience())
	}
	return wc
}

// WaitCompletion returns the next completion of r.CQ, if there is one in time.
func (r *Rig) WaitCompletion(timeout time.Duration) (verbs.WC, bool) { return r.WaitOn(r.CQ, timeout) }

// The first look for a completion comes soon and each further one later, so that
// waiting is neither slow nor dear.
const (
	firstLook = time.Microsecond
	lastLook  = time.Millisecond
)

// WaitOn returns the next completion of any queue, if there is one in time.
func (r *Rig) WaitOn(cq verbs.CQ, timeout time.Duration) (verbs.WC, bool) {
	var wcs [1]verbs.WC
	pause, until := firstLook, r.Now()+timeout
	for {
		n, err := cq.Poll(wcs[:])
		r.Do("a completion queue that can be polled", err)
		if n > 0 {
			r.Note("%s", Describe(&wcs[0]))
			return wcs[0], true
		}
		left := until - r.Now()
		if left <= 0 {
			return verbs.WC{}, false
		}
		r.Sleep(min(pause, left))
		pause = min(2*pause, lastLook)
	}
}

// Completes ends the case unless the next completion is of this request and with
// this status. It returns the completion.
func (r *Rig) Completes(id uint64, status verbs.WCStatus) verbs.WC {
	wc := r.Completion()
	if wc.WRID != id || wc.Status != status {
		r.Fail(fmt.Sprintf("request %d to complete with %v", id, status), "%s", Describe(&wc))
	}
	return wc
}

// Received ends the case unless the next completion is of this receive, with so
// many bytes. It returns the completion.
func (r *Rig) Received(id uint64, n int) verbs.WC {
	wc := r.Completes(id, verbs.WCSuccess)
	if wc.Opcode != verbs.WCOpRecv && wc.Opcode != verbs.WCOpRecvRDMAWithImm || int(wc.ByteLen) != n {
		r.Fail(fmt.Sprintf("receive %d with %d bytes", id, n), "%s", Describe(&wc))
	}
	return wc
}

// Incomplete ends the case if there is a completion by now. See to it that the
// device has had its time: ask its wire first.
func (r *Rig) Incomplete() {
	if wc, ok := r.WaitCompletion(0); ok {
		r.Fail("no completion", "%s", Describe(&wc))
	}
}

// Describe tells a completion in a few words.
func Describe(wc *verbs.WC) string {
	if wc.Status != verbs.WCSuccess {
		return fmt.Sprintf("completion of %d: %v", wc.WRID, wc.Status)
	}
	s := fmt.Sprintf("completion of %d: %v, %d bytes", wc.WRID, wc.Opcode, wc.ByteLen)
	if wc.Flags&verbs.WCWithImm != 0 {
		s += fmt.Sprintf(", immediate %#x", wc.Imm)
	}
	if wc.Flags&verbs.WCWithInv != 0 {
		s += fmt.Sprintf(", invalidated %#x", uint32(wc.InvalidatedRKey))
	}
	return s
}

// Post posts a send request that has to be taken.
func (r *Rig) Post(qp verbs.QP, wrs ...verbs.SendWR) {
	for i := range wrs {
		r.Note("post %v %d", wrs[i].Opcode, wrs[i].WRID)
	}
	n, err := qp.PostSend(wrs)
	r.Do("a send request that is taken", err)
	r.Check(n == len(wrs), fmt.Sprintf("%d requests taken", len(wrs)), "%d", n)
}

// Receiver is what receives are posted to: a queue pair or a shared receive queue.
type Receiver interface {
	PostRecv(wrs []verbs.RecvWR) (int, error)
}

// Recv posts a receive that has to be taken.
func (r *Rig) Recv(q Receiver, id uint64, sgl ...verbs.SGE) {
	n, err := q.PostRecv([]verbs.RecvWR{{WRID: id, SGL: sgl}})
	r.Do("a receive that is taken", err)
	r.Check(n == 1, "one receive taken", "%d", n)
}

// State ends the case unless the queue pair is, or soon comes to be, in this state.
func (r *Rig) State(qp verbs.QP, want verbs.QPState) {
	pause, until := firstLook, r.Now()+r.Patience()
	for {
		a, err := qp.Query()
		r.Do("a queue pair that can be queried", err)
		switch {
		case a.State == want:
			return
		case r.Now() >= until:
			r.Fail(fmt.Sprintf("a queue pair in %v", want), "%v", a.State)
		}
		r.Sleep(pause)
		pause = min(2*pause, lastLook)
	}
}

// StateIs ends the case unless the queue pair is in this state now.
func (r *Rig) StateIs(qp verbs.QP, want verbs.QPState) {
	a, err := qp.Query()
	r.Do("a queue pair that can be queried", err)
	r.Check(a.State == want, fmt.Sprintf("a queue pair in %v", want), "%v", a.State)
}
