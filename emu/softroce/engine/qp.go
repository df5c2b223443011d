package engine

import (
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/internal/dcqcn"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/internal/queue"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// maxMessage is the longest message a request may carry.
const maxMessage = 1 << 31

// QP is a queue pair. Its three roles are in files of their own.
type QP struct {
	nic  *NIC
	num  uint32
	typ  verbs.QPType
	caps verbs.QPCaps
	pd   nic.PD

	sendCQ, recvCQ *nic.CQ
	srq            *nic.SRQ
	xrcd           *nic.XRCD
	signalAll      bool

	state verbs.QPState
	attr  verbs.QPAttr // as last set, the state apart
	path  path
	alt   path
	mtu   int32
	pkey  uint16

	sq   sendQueue
	rq   nic.RecvQueue
	req  requester
	resp responder

	limiter  dcqcn.Limiter
	notifier dcqcn.Notifier
	cnpDue   bool
	cnpPKey  uint16 // of the packet that the CNP answers

	drainNotify    bool // SQ_DRAINED is wanted when draining ends
	migErrReported bool // PATH_MIG_ERR was reported
	groups         int  // multicast attachments
	opens          int  // further handles to an XRC target

	queued bool // in NIC.active
	timer  queue.Timer[QP]

	// Owner is the driver's to use.
	Owner any
}

// QPConfig asks for a queue pair.
type QPConfig struct {
	Type           verbs.QPType
	PD             nic.PD
	SendCQ, RecvCQ *nic.CQ
	SRQ            *nic.SRQ
	XRCD           *nic.XRCD
	Caps           verbs.QPCaps
	SignalAll      bool
}

// sends and receives say which halves a QP type has.
func sends(t verbs.QPType) bool    { return t != verbs.QPTypeXRCRecv }
func receives(t verbs.QPType) bool { return t != verbs.QPTypeXRCSend }

// CreateQP makes a queue pair in RESET.
func (n *NIC) CreateQP(c QPConfig) (*QP, error) {
	if err := n.checkQP(&c); err != nil {
		return nil, err
	}
	num, err := n.qps.Next()
	if err != nil {
		return nil, err
	}
	q := &QP{
		nic: n, num: num, typ: c.Type, caps: c.Caps, pd: c.PD, sendCQ: c.SendCQ, recvCQ: c.RecvCQ,
		srq: c.SRQ, xrcd: c.XRCD, signalAll: c.SignalAll,
	}
	q.timer.Owner, q.timer.TieBreak = q, num
	if sends(c.Type) {
		q.sq = newSendQueue(&c.Caps)
		c.SendCQ.Use(1)
	}
	if receives(c.Type) && c.SRQ == nil && c.Type != verbs.QPTypeXRCRecv {
		q.rq = nic.NewRecvQueue(c.Caps.MaxRecvWR, c.Caps.MaxRecvSGE)
	}
	if c.RecvCQ != nil {
		c.RecvCQ.Use(1)
	}
	if c.SRQ != nil {
		c.SRQ.Use(1)
	}
	if c.XRCD != nil {
		c.XRCD.Use(1)
	}
	if c.Type != verbs.QPTypeXRCRecv {
		n.UsePD(c.PD, 1)
	}
	q.reset()
	n.qps.Add(q)
	return q, nil
}

func (n *NIC) checkQP(c *QPConfig) error {
	invalid := func(format string, args ...any) error {
		return nic.OpError("create_qp", "", "%w: "+format, append([]any{verbs.ErrInvalid}, args...)...)
	}
	switch c.Type {
	case verbs.QPTypeRC, verbs.QPTypeUC, verbs.QPTypeUD:
		if c.SendCQ == nil || c.RecvCQ == nil {
			return invalid("%v needs a send and a receive CQ", c.Type)
		}
	case verbs.QPTypeXRCSend:
		if c.SendCQ == nil || c.SRQ != nil {
			return invalid("%v needs a send CQ and has no SRQ", c.Type)
		}
	case verbs.QPTypeXRCRecv:
		if c.XRCD == nil || c.SRQ != nil || c.SendCQ != nil || c.RecvCQ != nil {
			return invalid("%v needs an XRC domain and has no queues of its own", c.Type)
		}
	default:
		return nic.OpError("create_qp", "", "%w: type %v", verbs.ErrNotSupported, c.Type)
	}
	if c.Type == verbs.QPTypeXRCRecv && !n.HasXRCD(c.XRCD) {
		return invalid("no such XRC domain")
	}
	if c.Type != verbs.QPTypeXRCRecv {
		if err := n.CheckPD("create_qp", c.PD); err != nil {
			return err
		}
	}
	if c.SRQ != nil && c.SRQ.Type != verbs.SRQBasic {
		return invalid("an XRC SRQ is named by senders, not attached")
	}
	return n.CheckCaps(&c.Caps)
}

// DestroyQP removes a QP at once: nothing completes, nothing is sent any more.
func (n *NIC) DestroyQP(q *QP) error {
	if n.qps.At(q.num) != q {
		return nic.OpError("destroy_qp", q.name(), "%w: it is gone already", verbs.ErrInvalid)
	}
	if q.opens > 0 {
		q.opens-- // the target lives on for its other holders
		return nil
	}
	if q.groups > 0 {
		return nic.OpError("destroy_qp", q.name(), "%w: attached to %d multicast groups", verbs.ErrBusy, q.groups)
	}
	if q.sendCQ != nil {
		q.sendCQ.Use(-1)
	}
	if q.recvCQ != nil {
		q.recvCQ.Use(-1)
	}
	if q.srq != nil {
		q.srq.Use(-1)
	}
	if q.xrcd != nil {
		q.xrcd.Use(-1)
	}
	if q.typ != verbs.QPTypeXRCRecv {
		n.UsePD(q.pd, -1)
	}
	n.Mem.UnbindQP(q.num)
	n.Retract(func(e *nic.Event) bool { return e.QP == q })
	n.qps.Remove(q.num)
	n.timers.Stop(&q.timer)
	q.resp.dropPending()
	q.reset() // it may still stand in line to send, and must find nothing
	return nil
}

// OpenQP returns the XRC target of the given number and domain for one more
// holder.
func (n *NIC) OpenQP(x *nic.XRCD, qpn uint32) (*QP, error) {
	q := n.qps.At(qpn)
	if q == nil || q.typ != verbs.QPTypeXRCRecv || q.xrcd != x {
		return nil, nic.OpError("open_qp", fmt.Sprintf("qp %#x", qpn), "%w in this XRC domain", verbs.ErrNotFound)
	}
	q.opens++
	return q, nil
}

// Num is the QP's number.
func (q *QP) Num() uint32 { return q.num }

// Type is the QP's type.
func (q *QP) Type() verbs.QPType { return q.typ }

// State is the QP's state.
func (q *QP) State() verbs.QPState { return q.state }

// RateBps is the rate that congestion control holds the QP to at present; the
// line rate if it holds it to none.
func (q *QP) RateBps() uint64 { return q.limiter.RateBps(&q.nic.cfg.Congestion) }

func (q *QP) name() string { return fmt.Sprintf("qp %#x", q.num) }

// Ends are the addresses that the QP's path leads from and to; not valid if it
// has none.
func (q *QP) Ends() (own, peer netip.Addr) { return q.path.src.Addr(), q.path.dst.Addr() }

// Expected is the PSN of the next request.
func (q *QP) Expected() wire.PSN { return q.resp.expected }

// HasReceive reports whether a message for the QP would find a receive.
func (q *QP) HasReceive() bool { return receives(q.typ) && q.receiveReady() }

// Transport is the opcode space of the QP's packets.
func (q *QP) Transport() wire.Transport { return q.transport() }

func (q *QP) transport() wire.Transport {
	switch q.typ {
	case verbs.QPTypeUC:
		return wire.TransportUC
	case verbs.QPTypeUD:
		return wire.TransportUD
	case verbs.QPTypeXRCSend, verbs.QPTypeXRCRecv:
		return wire.TransportXRC
	default:
		return wire.TransportRC
	}
}

func (q *QP) reliable() bool { return q.typ != verbs.QPTypeUC && q.typ != verbs.QPTypeUD }

// reset returns the QP to the state it was made in.
func (q *QP) reset() {
	q.state = verbs.QPStateReset
	q.attr = verbs.QPAttr{}
	q.path, q.alt = path{}, path{}
	q.migErrReported = false
	q.sq.head, q.sq.tail = 0, 0
	q.rq.Clear()
	held := q.resp.recv.sges[:0]
	q.req = requester{timer: mono.Never, rnrUntil: mono.Never}
	q.releaseAck()
	q.resp = responder{hold: q.resp.hold.initial()}
	q.resp.recv.sges = held
	q.limiter = dcqcn.Limiter{}
	q.notifier = dcqcn.Notifier{}
	q.cnpDue = false
	q.drainNotify = false
	q.mtu = int32(q.nic.MTU().Bytes())
	q.pkey = q.nic.cfg.PKeys[0]
}

// wake lets the QP send what it can.
func (q *QP) wake() { q.nic.active.push(q) }

// deadline is when the QP wants to be ticked.
func (q *QP) deadline() mono.Time {
	at := min(q.req.timer, q.req.rnrUntil)
	if q.limiter.Active() {
		at = min(at, q.limiter.NextTimer())
		if q.req.paced {
			at = min(at, q.limiter.ReadyAt())
		}
	}
	return at
}

// rearm tells the NIC's heap about the QP's deadline.
func (q *QP) rearm() { q.nic.timers.set(q, q.deadline()) }

// tick handles the QP's own deadlines.
func (q *QP) tick(now mono.Time) {
	if q.limiter.Active() {
		q.limiter.HandleTimer(now, &q.nic.cfg.Congestion)
		if q.req.paced && (!q.limiter.Active() || q.limiter.ReadyAt() <= now) {
			q.req.paced = false
			q.wake()
		}
	}
	if q.req.rnrUntil <= now {
		q.rnrWaitExpired()
	}
	if q.req.timer <= now {
		q.timeout()
	}
}

// fail puts the QP into the error state and flushes its queues, send first,
// each in order.
func (q *QP) fail() {
	if q.state == verbs.QPStateErr {
		return
	}
	q.state = verbs.QPStateErr
	q.req.timer, q.req.rnrUntil = mono.Never, mono.Never
	q.flushSends()
	q.flushRecvs()
	if q.srq != nil && !q.nic.defects.NoLastWQEEvent {
		q.nic.Report(nic.Event{Type: verbs.EventQPLastWQEReached, QP: q})
	}
}

// flushSends completes every send work request as flushed.
func (q *QP) flushSends() {
	for !q.sq.empty() {
		q.completeSend(q.sq.at(q.sq.head), verbs.WCWRFlushErr)
	}
	q.req.cur = q.sq.tail
	q.req.pkt = 0
}

// flushRecvs completes the receive under way and all that wait as flushed. The
// receives of an SRQ belong to its other QPs too and stay.
func (q *QP) flushRecvs() {
	if h := &q.resp.recv; h.active {
		h.active = false
		q.pushRecv(&verbs.WC{WRID: h.wrID, Status: verbs.WCWRFlushErr})
	}
	for q.rq.Count() > 0 {
		status := verbs.WCWRFlushErr
		q.pushRecv(&verbs.WC{WRID: q.rq.Peek().WRID, Status: status, Opcode: verbs.WCOpRecv})
		q.rq.Take()
	}
}

// pushRecv adds a completion to the receive CQ. A full CQ fails the QP; there
// is nobody left to tell then but the CQ's own event.
func (q *QP) pushRecv(wc *verbs.WC) bool {
	wc.QPN = verbs.QPN(q.num)
	cq := q.recvCQ
	if q.typ == verbs.QPTypeXRCRecv {
		cq = q.resp.xrcCQ
	}
	if cq == nil {
		return true
	}
	if q.nic.defects.GRHFlagOnConnected && q.typ != verbs.QPTypeUD && wc.Status == verbs.WCSuccess {
		wc.Flags |= verbs.WCWithGRH
	}
	return q.pushTo(cq, wc, q.resp.solicited)
}

func (q *QP) pushTo(cq *nic.CQ, wc *verbs.WC, solicited bool) bool {
	if !cq.Push(wc, solicited) {
		q.fail()
		return false
	}
	q.nic.Count.Recvs++
	return true
}
