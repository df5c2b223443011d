package engine

import (
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/iwarp"
	ddp "github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// QPConfig are the parameters of CreateQP.
type QPConfig struct {
	iwarp.QueueConfig
	// Reliable selects RD instead of UD. To verbs both are UD.
	Reliable bool
	// Isolate keeps the QP working after errors of a peer.
	Isolate bool
}

// QP is a queue pair.
type QP struct {
	iwarp.Queues
	// Reliable and isolate are those of QPConfig.
	Reliable, isolate bool
	nic               *NIC

	state  verbs.QPState
	attr   verbs.QPAttr
	groups int
	sendQueue
	sent uint32 // octets of the first pending request that were sent (UD)
	msn  ddp.MSN
	// reservedReceives is the number of posted receives for which peers were already resumed.
	reservedReceives int
	peersWait        bool // in NIC.awaitingReceives
	reported         ErrorReport

	// Owner is free for use by the driver.
	Owner any
}

// sendQueue holds the posted requests.
type sendQueue struct {
	work    []request // slots
	free    []uint32  // free slots
	pending nic.FIFO[uint32]
	queued  bool // in NIC.sending
	// reportDrained: SQ_DRAINED is due when the requests that were begun have completed.
	reportDrained bool
}

// request is a send work request with its destination.
type request struct {
	iwarp.Request
	slot uint32
	path path
	qpn  uint32
	qkey uint32
	next *request // to the same peer
}

// ErrorReport is an error that a peer reported.
type ErrorReport struct {
	From   netip.AddrPort
	FromQP uint32
	Error  ddp.TermError
	// MSN is the MSN of the message, if HasMSN is set.
	MSN    ddp.MSN
	HasMSN bool
}

// CreateQP creates a queue pair in RESET.
func (n *NIC) CreateQP(c QPConfig) (*QP, error) {
	if err := c.Check(&n.Base); err != nil {
		return nil, err
	}
	num, err := n.qps.Next()
	if err != nil {
		return nil, err
	}
	q := &QP{nic: n, Reliable: c.Reliable, isolate: c.Isolate}
	slots := q.Init(&n.layer, num, &c.QueueConfig)
	q.Access = iwarp.RemoteAccess
	q.work, q.free = make([]request, slots), make([]uint32, 0, slots)
	q.reset()
	n.qps.Add(q)
	return q, nil
}

// DestroyQP destroys a QP and discards its work requests, without completions. It fails for a QP in
// a multicast group.
func (n *NIC) DestroyQP(q *QP) error {
	if n.qps.At(q.QPN) != q {
		return q.OpError("destroy_qp", verbs.ErrInvalid, "it is gone already")
	}
	if q.groups > 0 {
		return q.OpError("destroy_qp", verbs.ErrBusy, "%d multicast groups use it", q.groups)
	}
	q.reset()
	q.Release(q)
	n.qps.Remove(q.QPN)
	return nil
}

// LastError returns the last error that a peer reported for a message of this QP; false if no peer
// reported one.
func (q *QP) LastError() (ErrorReport, bool) { return q.reported, q.reported.From.IsValid() }

// maySend reports whether the state of the QP allows it to send. In SQD it sends the rest of a
// message whose first packets it has sent.
func (q *QP) maySend() bool {
	return q.state == verbs.QPStateRTS || q.state == verbs.QPStateSQD && q.sent > 0
}

// mayReceive reports whether the state of the QP allows it to receive.
func (q *QP) mayReceive() bool {
	return q.state >= verbs.QPStateRTR && q.state != verbs.QPStateErr
}

// reset returns the QP to RESET and discards all posted requests and peers.
func (q *QP) reset() {
	n := q.nic
	if q.Reliable {
		n.rd.CloseQP(q.QPN)
	}
	n.messages.forget(q)
	n.records.forget(q)
	q.state, q.attr = verbs.QPStateReset, verbs.QPAttr{}
	q.msn, q.sent, q.reported, q.reservedReceives = ddp.FirstMSN, 0, ErrorReport{}, 0
	q.reportDrained = false
	q.RQ.Clear()
	q.pending.Release()
	q.free = q.free[:0]
	// The number of slots is rounded up: use only MaxSendWR, the first one first.
	for i := range slices.Backward(q.work[:q.Caps.MaxSendWR]) {
		q.free = append(q.free, uint32(i))
	}
}

// Modify changes the attributes that mask selects. A reliable QP has those of a UD QP. A
// transition to SQD reports the send queue as drained at once, if EnSQDAsyncNotify is set.
func (q *QP) Modify(attr verbs.QPAttr, mask verbs.QPAttrMask) error {
	to, err := nic.Transition(verbs.QPTypeUD, q.state, &attr, mask)
	if err != nil {
		return &verbs.OpError{Op: "modify_qp", Obj: q.Name(), Err: err}
	}
	if mask&verbs.QPAttrPort != 0 && attr.Port != 1 {
		return q.OpError("modify_qp", verbs.ErrInvalid, "port %d, there is only port 1", attr.Port)
	}
	if mask&verbs.QPAttrPKeyIndex != 0 && attr.PKeyIndex != 0 {
		return q.OpError("modify_qp", verbs.ErrInvalid, "P_Key index %d, there is only 0", attr.PKeyIndex)
	}
	switch to {
	case verbs.QPStateReset:
		q.reset()
		return nil
	case verbs.QPStateErr:
		q.fail()
		return nil
	}
	if mask&verbs.QPAttrQKey != 0 {
		q.attr.QKey = attr.QKey
	}
	if mask&verbs.QPAttrPort != 0 {
		q.attr.Port = attr.Port
	}
	if mask&verbs.QPAttrSQPSN != 0 {
		q.attr.SQPSN = attr.SQPSN // it has no effect: Query returns it
	}
	if to != q.state {
		q.reportDrained = to == verbs.QPStateSQD && mask&verbs.QPAttrEnSQDAsyncNotify != 0 && attr.EnSQDAsyncNotify
	}
	q.state = to
	q.checkDrained()
	q.queueOutput()
	return nil
}

// checkDrained reports SQ_DRAINED if it is due: no request was begun that has not completed.
func (q *QP) checkDrained() {
	posted := q.Caps.MaxSendWR - len(q.free)
	if q.reportDrained && q.sent == 0 && posted == q.pending.Len() {
		q.reportDrained = false
		q.nic.Report(nic.Event{Type: verbs.EventSQDrained, QP: q})
	}
}

// Query returns the attributes.
func (q *QP) Query() verbs.QPAttr {
	a := q.attr
	a.State, a.CurState, a.Caps = q.state, q.state, q.Caps
	return a
}

// fail moves the QP to ERR and flushes all work requests.
func (q *QP) fail() {
	if q.state == verbs.QPStateErr {
		return
	}
	q.state = verbs.QPStateErr
	q.reportDrained = false
	q.nic.messages.forget(q)
	q.nic.records.forget(q)
	if q.Reliable {
		q.nic.failPeers(q)
	}
	for slot, ok := q.pending.Pop(); ok; slot, ok = q.pending.Pop() {
		q.complete(&q.work[slot], verbs.WCWRFlushErr)
	}
	for w := q.RQ.Peek(); w != nil; w = q.RQ.Peek() {
		q.RQ.Take()
		q.push(q.RecvCQ, &verbs.WC{WRID: w.WRID, Status: verbs.WCWRFlushErr, Opcode: verbs.WCOpRecv}, notSolicited)
	}
	if q.SRQ != nil {
		q.nic.Report(nic.Event{Type: verbs.EventQPLastWQEReached, QP: q})
	}
}

const notSolicited = false // argument of push

// push adds a completion to cq. If cq is full and the QP is not in ERR yet, push raises
// EventQPFatal and fails the QP.
func (q *QP) push(cq *nic.CQ, wc *verbs.WC, solicited bool) {
	wc.QPN = verbs.QPN(q.QPN)
	if wc.Opcode&verbs.WCOpRecv != 0 {
		q.nic.Count.Recvs++
	}
	if !cq.Push(wc, solicited) && q.state != verbs.QPStateErr {
		q.nic.Report(nic.Event{Type: verbs.EventQPFatal, QP: q})
		q.fail()
	}
}

// complete queues the completion of a request, if it is signaled or failed, and frees its slot.
func (q *QP) complete(r *request, status verbs.WCStatus) {
	q.nic.Count.Sends++
	if r.IsSuccessfulSend(status) {
		q.nic.Count.Messages++
	}
	if status != verbs.WCSuccess || r.Signaled() {
		wc := r.Completion(status, verbs.QPN(q.QPN))
		q.push(q.SendCQ, &wc, notSolicited)
	}
	q.free = append(q.free, r.slot)
	q.checkDrained()
}
