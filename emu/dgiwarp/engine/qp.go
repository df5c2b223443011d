package engine

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/iwarp"
	ddp "github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// QPConfig are the parameters of CreateQP.
type QPConfig struct {
	// Reliable selects RD instead of UD. To verbs both are UD.
	Reliable bool
	// Isolate keeps the QP working after errors of a peer.
	Isolate        bool
	PD             nic.PD
	SendCQ, RecvCQ *nic.CQ
	SRQ            *nic.SRQ
	Caps           verbs.QPCaps
	SignalAll      bool
}

// QP is a queue pair.
type QP struct {
	nic       *NIC
	num       uint32
	reliable  bool
	isolate   bool
	signalAll bool
	queued    bool // in NIC.sending
	peersWait bool // in NIC.peersWait
	caps      verbs.QPCaps

	sendCQ, recvCQ *nic.CQ
	srq            *nic.SRQ
	rq             nic.RecvQueue
	endpoint       iwarp.Endpoint

	state  verbs.QPState
	attr   verbs.QPAttr
	groups int
	// promised is the number of posted receives that waiting peers were already resumed for.
	promised int

	work     []request // slots of the send queue
	slots    nic.Slots
	free     []uint32 // free slots
	pending  nic.FIFO[uint32]
	sent     uint32 // octets of the first pending request that were sent (UD)
	msn      ddp.MSN
	reported ErrorReport

	// Owner is free for use by the driver.
	Owner any
}

// request is a send work request with its destination.
type request struct {
	iwarp.Request
	place uint32
	path  path
	qpn   uint32
	qkey  uint32
	next  *request // to the same peer
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
	if err := n.checkQP(&c); err != nil {
		return nil, err
	}
	num, err := n.qps.Next()
	if err != nil {
		return nil, err
	}
	q := &QP{
		nic: n, num: num, reliable: c.Reliable, isolate: c.Isolate, signalAll: c.SignalAll, caps: c.Caps,
		sendCQ: c.SendCQ, recvCQ: c.RecvCQ, srq: c.SRQ,
		endpoint: iwarp.Endpoint{Layer: &n.layer, PD: c.PD, QPN: num, Access: iwarp.RemoteAccess},
	}
	slots, places := nic.NewSlots(c.Caps.MaxSendWR, c.Caps.MaxSendSGE, c.Caps.MaxInline)
	q.work, q.slots, q.free = make([]request, places), slots, make([]uint32, 0, places)
	if c.SRQ == nil {
		q.rq = nic.NewRecvQueue(c.Caps.MaxRecvWR, c.Caps.MaxRecvSGE)
	} else {
		c.SRQ.Use(1)
	}
	c.SendCQ.Use(1)
	c.RecvCQ.Use(1)
	n.UsePD(c.PD, 1)
	q.reset()
	n.qps.Add(q)
	n.count++
	if n.firstQP == nil {
		n.firstQP = q
	}
	return q, nil
}

// checkQP returns an error if CreateQP cannot create a QP with these parameters.
func (n *NIC) checkQP(c *QPConfig) error {
	invalid := func(format string, args ...any) error {
		return nic.OpError("create_qp", "", "%w: "+format, append([]any{verbs.ErrInvalid}, args...)...)
	}
	switch {
	case c.SendCQ == nil || c.RecvCQ == nil || c.SendCQ.Gone() || c.RecvCQ.Gone():
		return invalid("it needs a send and a receive CQ")
	case c.SRQ != nil && (c.SRQ.Type != verbs.SRQBasic || n.SRQ(c.SRQ.Num()) != c.SRQ):
		return invalid("not a shared receive queue of this device")
	}
	if err := n.CheckPD("create_qp", c.PD); err != nil {
		return err
	}
	return n.CheckCaps(&c.Caps)
}

// DestroyQP destroys a QP without completions.
func (n *NIC) DestroyQP(q *QP) error {
	if n.qps.At(q.num) != q {
		return nic.OpError("destroy_qp", q.name(), "%w: it is gone already", verbs.ErrInvalid)
	}
	if q.groups > 0 {
		return nic.OpError("destroy_qp", q.name(), "%w by %d multicast groups", verbs.ErrBusy, q.groups)
	}
	q.reset()
	q.sendCQ.Use(-1)
	q.recvCQ.Use(-1)
	if q.srq != nil {
		q.srq.Use(-1)
	}
	n.UsePD(q.endpoint.PD, -1)
	n.Mem.UnbindQP(q.num)
	n.DropEvents(func(e *nic.Event) bool { return e.QP == any(q) })
	n.qps.Remove(q.num)
	n.count--
	if n.firstQP == q {
		n.firstQP = n.someQP(func(*QP) bool { return true })
	}
	return nil
}

// Num is the QP's number.
func (q *QP) Num() uint32 { return q.num }

// State is the QP's state.
func (q *QP) State() verbs.QPState { return q.state }

// Reliable reports whether the QP is one of RD.
func (q *QP) Reliable() bool { return q.reliable }

// LastError returns the last error that a peer reported for a message of this QP.
func (q *QP) LastError() (ErrorReport, bool) { return q.reported, q.reported.From.IsValid() }

func (q *QP) name() string { return fmt.Sprintf("qp %#x", q.num) }

// sends reports whether the state of the QP allows it to send.
func (q *QP) sends() bool { return q.state == verbs.QPStateRTS }

// receives reports whether the state of the QP allows it to receive.
func (q *QP) receives() bool {
	return q.state >= verbs.QPStateRTR && q.state != verbs.QPStateErr
}

// reset returns the QP to RESET and discards all posted requests and peers.
func (q *QP) reset() {
	n := q.nic
	if q.reliable {
		n.rd.CloseQP(q.num)
	}
	n.messages.forget(q)
	n.records.forget(q)
	q.state, q.attr = verbs.QPStateReset, verbs.QPAttr{}
	q.msn, q.sent, q.reported, q.promised = ddp.FirstMSN, 0, ErrorReport{}, 0
	q.rq.Clear()
	q.pending.Release()
	q.free = q.free[:0]
	for i := range slices.Backward(q.work[:q.caps.MaxSendWR]) {
		q.free = append(q.free, uint32(i))
	}
}

// Modify changes the attributes that mask selects.
func (q *QP) Modify(attr verbs.QPAttr, mask verbs.QPAttrMask) error {
	to, err := nic.Transition(verbs.QPTypeUD, q.state, &attr, mask)
	if err != nil {
		return nic.OpError("modify_qp", q.name(), "%w", err)
	}
	if mask&verbs.QPAttrPort != 0 && attr.Port != 1 {
		return nic.OpError("modify_qp", q.name(), "%w: port %d, there is only port 1", verbs.ErrInvalid, attr.Port)
	}
	if mask&verbs.QPAttrPKeyIndex != 0 && attr.PKeyIndex != 0 {
		return nic.OpError("modify_qp", q.name(), "%w: P_Key index %d, there is only 0", verbs.ErrInvalid, attr.PKeyIndex)
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
		q.attr.SQPSN = attr.SQPSN // it has no meaning here, and is kept to be shown
	}
	drained := to == verbs.QPStateSQD && q.state != to && mask&verbs.QPAttrEnSQDAsyncNotify != 0 && attr.EnSQDAsyncNotify
	q.state = to
	if drained {
		q.nic.Report(nic.Event{Type: verbs.EventSQDrained, QP: q})
	}
	q.queueOutput()
	return nil
}

// Query returns the attributes.
func (q *QP) Query() verbs.QPAttr {
	a := q.attr
	a.State, a.CurState, a.Caps = q.state, q.state, q.caps
	return a
}

// fail moves the QP to ERR and flushes all work requests.
func (q *QP) fail() {
	if q.state == verbs.QPStateErr {
		return
	}
	q.state = verbs.QPStateErr
	q.nic.messages.forget(q)
	q.nic.records.forget(q)
	if q.reliable {
		q.nic.failPeers(q)
	}
	for place, ok := q.pending.Pop(); ok; place, ok = q.pending.Pop() {
		q.complete(&q.work[place], verbs.WCWRFlushErr)
	}
	for w := q.rq.Peek(); w != nil; w = q.rq.Peek() {
		q.rq.Take()
		q.push(q.recvCQ, &verbs.WC{WRID: w.WRID, Status: verbs.WCWRFlushErr, Opcode: verbs.WCOpRecv}, false)
	}
	if q.srq != nil {
		q.nic.Report(nic.Event{Type: verbs.EventQPLastWQEReached, QP: q})
	}
}

// push adds a completion to cq. If cq is full, the QP fails.
func (q *QP) push(cq *nic.CQ, wc *verbs.WC, solicited bool) {
	wc.QPN = verbs.QPN(q.num)
	if cq == q.recvCQ {
		q.nic.Count.Recvs++
	}
	if !cq.Push(wc, solicited) && q.state != verbs.QPStateErr {
		q.nic.Report(nic.Event{Type: verbs.EventQPFatal, QP: q})
		q.fail()
	}
}

// complete queues the completion of a request, if it is signaled or failed, and frees its
// slot.
func (q *QP) complete(r *request, status verbs.WCStatus) {
	q.nic.Count.Sends++
	if r.Sent(status) {
		q.nic.Count.Messages++
	}
	if status != verbs.WCSuccess || r.Signaled() {
		wc := r.Completion(status, verbs.QPN(q.num))
		q.push(q.sendCQ, &wc, false)
	}
	q.free = append(q.free, r.place)
}
