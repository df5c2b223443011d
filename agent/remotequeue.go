package agent

import (
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// remoteChannel is a completion channel.
type remoteChannel struct{ ref }

func (ch *remoteChannel) Wait(timeout time.Duration) (verbs.CQ, error) {
	e, err := callWaitChannel.call(ch.c, onWith[verbs.CompChannel, time.Duration]{ch, timeout})
	return e.V, err
}

// remoteCQ is a completion queue.
type remoteCQ struct {
	ref

	mu    sync.Mutex
	depth int
}

func (q *remoteCQ) Poll(into []verbs.WC) (n int, err error) {
	for {
		want := min(len(into)-n, maxPoll)
		got, err := callPoll.call(q.c, onWith[verbs.CQ, int]{q, want})
		n += copy(into[n:], got.V)
		if err != nil || len(got.V) < want || n == len(into) {
			return n, err
		}
	}
}

func (q *remoteCQ) ReqNotify(solicitedOnly bool) error {
	_, err := callArm.call(q.c, onWith[verbs.CQ, bool]{q, solicitedOnly})
	return err
}

// Depth queries the device, since resizing changes the depth. If the call fails it returns
// the last known depth.
func (q *remoteCQ) Depth() int {
	d, err := callDepth.call(q.c, on[verbs.CQ]{q})
	q.mu.Lock()
	defer q.mu.Unlock()
	if err == nil {
		q.depth = d.V
	}
	return q.depth
}

func (q *remoteCQ) Resize(depth int) error {
	_, err := callResize.call(q.c, onWith[verbs.CQ, int]{q, depth})
	return err
}

// remoteSRQ is a shared receive queue.
type remoteSRQ struct {
	ref
	number uint32
}

func (q *remoteSRQ) PostRecv(wrs []verbs.RecvWR) (int, error) {
	p, err := callPostRecv.call(q.c, onWith[receiver, []verbs.RecvWR]{q, wrs})
	return p.V, err
}

func (q *remoteSRQ) Modify(attr verbs.SRQAttr, mask verbs.SRQAttrMask) error {
	_, err := callModifySRQ.call(q.c, changeSRQ{q, attr, mask})
	return err
}

func (q *remoteSRQ) Query() (verbs.SRQAttr, error) {
	return callQuerySRQ.call(q.c, on[verbs.SRQ]{q})
}

func (q *remoteSRQ) Number() uint32 { return q.number }

// remoteQP is a queue pair.
type remoteQP struct {
	ref
	number verbs.QPN
	kind   verbs.QPType
}

func (q *remoteQP) QPN() verbs.QPN     { return q.number }
func (q *remoteQP) Type() verbs.QPType { return q.kind }

func (q *remoteQP) Modify(attr verbs.QPAttr, mask verbs.QPAttrMask) error {
	_, err := callModifyQP.call(q.c, changeQP{q, attr, mask})
	return err
}

func (q *remoteQP) Query() (verbs.QPAttr, error) { return callQueryQP.call(q.c, on[verbs.QP]{q}) }

func (q *remoteQP) PostSend(wrs []verbs.SendWR) (int, error) {
	p, err := callPostSend.call(q.c, onWith[verbs.QP, []verbs.SendWR]{q, wrs})
	return p.V, err
}

func (q *remoteQP) PostRecv(wrs []verbs.RecvWR) (int, error) {
	p, err := callPostRecv.call(q.c, onWith[receiver, []verbs.RecvWR]{q, wrs})
	return p.V, err
}

func (q *remoteQP) BindMW(mw verbs.MW, wrID uint64, flags verbs.SendFlags, info verbs.BindInfo) (verbs.RKey, error) {
	k, err := callBindMW.call(q.c, bindMW{q, mw, wrID, flags, info})
	return k.V, err
}

func (q *remoteQP) AttachMulticast(group verbs.GID) error {
	_, err := callAttach.call(q.c, onWith[verbs.QP, verbs.GID]{q, group})
	return err
}

func (q *remoteQP) DetachMulticast(group verbs.GID) error {
	_, err := callDetach.call(q.c, onWith[verbs.QP, verbs.GID]{q, group})
	return err
}
