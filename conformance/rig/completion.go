package rig

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// NextCompletion waits for the next completion of r.CQ and returns it. It fails the case if there
// is none within the response timeout.
func (r *Rig) NextCompletion() verbs.WC {
	wc, ok := r.PollCompletion(r.ResponseTimeout())
	r.Check(ok, "a completion", "none in %v", r.ResponseTimeout())
	return wc
}

// PollCompletion waits for the next completion of r.CQ; false after the timeout.
func (r *Rig) PollCompletion(timeout time.Duration) (verbs.WC, bool) { return r.PollCQ(r.CQ, timeout) }

// The interval between two polls doubles from the minimum to the maximum.
const (
	minPollInterval = time.Microsecond
	maxPollInterval = time.Millisecond
)

// pollUntil polls until done returns true, at intervals that double up to maxInterval. It returns
// false after the timeout.
func (r *Rig) pollUntil(timeout, maxInterval time.Duration, done func() bool) bool {
	interval, deadline := minPollInterval, r.Now()+timeout
	for !done() {
		left := deadline - r.Now()
		if left <= 0 {
			return false
		}
		r.Sleep(min(interval, left))
		interval = min(2*interval, maxInterval)
	}
	return true
}

// PollCQ waits for the next completion of cq; false after the timeout.
func (r *Rig) PollCQ(cq verbs.CQ, timeout time.Duration) (verbs.WC, bool) {
	wc, ok := r.pollCQ(cq, timeout, maxPollInterval)
	if ok {
		r.Note("%s", Describe(&wc))
	}
	return wc, ok
}

// pollCQ waits for the next completion of cq, polling at most maxInterval apart; false after the
// timeout. Unlike PollCQ, it adds no note to the record.
func (r *Rig) pollCQ(cq verbs.CQ, timeout, maxInterval time.Duration) (verbs.WC, bool) {
	var wcs [1]verbs.WC
	ok := r.pollUntil(timeout, maxInterval, func() bool {
		n, err := cq.Poll(wcs[:])
		r.Must("a completion queue that can be polled", err)
		return n > 0
	})
	return wcs[0], ok
}

// Completions polls r.CQ until it is empty and returns the completions, without waiting.
func (r *Rig) Completions() (all []verbs.WC) {
	for wc, ok := r.PollCompletion(0); ok; wc, ok = r.PollCompletion(0) {
		all = append(all, wc)
	}
	return all
}

// ExpectCompletion fails the case unless the next completion has this work request ID
// and status. It returns the completion.
func (r *Rig) ExpectCompletion(id uint64, status verbs.WCStatus) verbs.WC {
	wc := r.NextCompletion()
	r.Check(wc.WRID == id && wc.Status == status, fmt.Sprintf("request %d to complete with %v", id, status), "%s", Describe(&wc))
	return wc
}

// ExpectCompletions fails the case unless the next completions have these work request
// IDs, in this order, and this status.
func (r *Rig) ExpectCompletions(status verbs.WCStatus, ids ...uint64) {
	for _, id := range ids {
		r.ExpectCompletion(id, status)
	}
}

// ExpectRecv fails the case unless the next completion is that of receive id, with n
// bytes. It returns the completion.
func (r *Rig) ExpectRecv(id uint64, n int) verbs.WC {
	wc := r.ExpectCompletion(id, verbs.WCSuccess)
	isRecv := wc.Opcode == verbs.WCOpRecv || wc.Opcode == verbs.WCOpRecvRDMAWithImm
	r.Check(isRecv && int(wc.ByteLen) == n, fmt.Sprintf("receive %d with %d bytes", id, n), "%s", Describe(&wc))
	return wc
}

// ExpectNoCompletion fails the case if r.CQ has a completion now. The case must have
// synchronized with the device before, by an exchange of packets.
func (r *Rig) ExpectNoCompletion() {
	wc, ok := r.PollCompletion(0)
	r.Check(!ok, "no completion", "%s", Describe(&wc))
}

// ExpectNoSuccess takes all completions that r.CQ has now, and fails the case if one is successful.
// The case must have synchronized with the device before, by an exchange of packets.
func (r *Rig) ExpectNoSuccess() {
	for wc, ok := r.PollCompletion(0); ok; wc, ok = r.PollCompletion(0) {
		r.Check(wc.Status != verbs.WCSuccess, "no successful completion", "%s", Describe(&wc))
	}
}

// Describe formats a completion: work request ID, and status if it failed, else opcode and length.
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

// PostSend posts send requests, which the device must accept.
func (r *Rig) PostSend(qp verbs.QP, wrs ...verbs.SendWR) {
	for i := range wrs {
		r.Note("post %v %d", wrs[i].Opcode, wrs[i].WRID)
	}
	n := Result(qp.PostSend(wrs))(r, "a send request that the device accepts")
	r.Check(n == len(wrs), fmt.Sprintf("%d requests accepted", len(wrs)), "%d", n)
}

// RecvQueue is a queue pair or a shared receive queue.
type RecvQueue interface {
	PostRecv(wrs []verbs.RecvWR) (int, error)
}

// PostRecv posts a receive, which the device must accept.
func (r *Rig) PostRecv(q RecvQueue, id uint64, sgl ...verbs.SGE) {
	n := Result(q.PostRecv([]verbs.RecvWR{{WRID: id, SGL: sgl}}))(r, "a receive that the device accepts")
	r.Check(n == 1, "one receive accepted", "%d", n)
}

// AwaitState waits until the queue pair is in a state. The case fails after the response timeout.
func (r *Rig) AwaitState(qp verbs.QP, want verbs.QPState) {
	var state verbs.QPState
	ok := r.pollUntil(r.ResponseTimeout(), maxPollInterval, func() bool {
		state = r.QueryQP(qp).State
		return state == want
	})
	r.Check(ok, fmt.Sprintf("a queue pair in %v", want), "%v", state)
}

// ExpectState fails the case unless the queue pair is in this state now.
func (r *Rig) ExpectState(qp verbs.QP, want verbs.QPState) {
	a := r.QueryQP(qp)
	r.Check(a.State == want, fmt.Sprintf("a queue pair in %v", want), "%v", a.State)
}
