package agent

import (
	"sync/atomic"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// remoteChannel is a completion channel.
type remoteChannel struct{ ref }

func (ch *remoteChannel) Wait(timeout time.Duration) (verbs.CQ, error) {
	var e cqEvent
	err := ch.call(callWaitChannel, &e, timeout)
	return e.CQ, err
}

// remoteCQ is a completion queue.
type remoteCQ struct {
	ref
	lastKnown atomic.Int64 // depth
}

// Poll implements verbs.CQ. It makes a call for every maxPoll completions.
func (q *remoteCQ) Poll(into []verbs.WC) (n int, err error) {
	for {
		want := min(len(into)-n, maxPoll)
		var got []verbs.WC
		err := q.call(callPoll, &got, want)
		n += copy(into[n:], got)
		if err != nil || len(got) < want || n == len(into) {
			return n, err
		}
	}
}

func (q *remoteCQ) ReqNotify(solicitedOnly bool) error {
	return q.call(callReqNotify, nil, solicitedOnly)
}

// Depth queries the device, since resizing changes the depth, or returns the last known depth.
func (q *remoteCQ) Depth() int {
	var depth int
	if q.call(callDepth, &depth) == nil {
		q.lastKnown.Store(int64(depth))
	}
	return int(q.lastKnown.Load())
}

func (q *remoteCQ) Resize(depth int) error { return q.call(callResize, nil, depth) }

// remoteSRQ is a shared receive queue.
type remoteSRQ struct {
	ref
	number uint32
}

func (q *remoteSRQ) PostRecv(wrs []verbs.RecvWR) (posted int, err error) {
	err = q.call(callPostRecv, &posted, wrs)
	return posted, err
}

func (q *remoteSRQ) Modify(attr verbs.SRQAttr, mask verbs.SRQAttrMask) error {
	return q.call(callModifySRQ, nil, attr, mask)
}

func (q *remoteSRQ) Query() (attr verbs.SRQAttr, err error) {
	err = q.call(callQuerySRQ, &attr)
	return attr, err
}

func (q *remoteSRQ) Number() uint32 { return q.number }

// remoteQP is a queue pair.
type remoteQP struct {
	ref
	attr qpAttributes
}

func (q *remoteQP) QPN() verbs.QPN     { return q.attr.QPN }
func (q *remoteQP) Type() verbs.QPType { return q.attr.Type }

func (q *remoteQP) Modify(attr verbs.QPAttr, mask verbs.QPAttrMask) error {
	return q.call(callModifyQP, nil, attr, mask)
}

func (q *remoteQP) Query() (attr verbs.QPAttr, err error) {
	err = q.call(callQueryQP, &attr)
	return attr, err
}

func (q *remoteQP) PostSend(wrs []verbs.SendWR) (posted int, err error) {
	err = q.call(callPostSend, &posted, wrs)
	return posted, err
}

func (q *remoteQP) PostRecv(wrs []verbs.RecvWR) (posted int, err error) {
	err = q.call(callPostRecv, &posted, wrs)
	return posted, err
}

func (q *remoteQP) BindMW(mw verbs.MW, wrID uint64, flags verbs.SendFlags, info verbs.BindInfo) (key verbs.RKey, err error) {
	err = q.call(callBindMW, &key, mw, wrID, flags, info)
	return key, err
}

func (q *remoteQP) AttachMulticast(group verbs.GID) error { return q.call(callAttach, nil, group) }
func (q *remoteQP) DetachMulticast(group verbs.GID) error { return q.call(callDetach, nil, group) }
