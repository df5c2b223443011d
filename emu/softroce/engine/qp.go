package engine

import (
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// maxMessage is the longest message a request may carry.
const maxMessage = 1 << 31

// QP is a queue pair. Requester, responder and completer are in files with these
// names.
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
	attr  verbs.QPAttr // as last set, without the state
	path  path
	alt   path
	mtu   int32
	pkey  uint16

	sq   sendQueue
	rq   nic.RecvQueue
	req  requester
	resp responder

	limiter  rateLimiter
	notifier cnpNotifier
	cnpDue   bool
	cnpPKey  uint16 // P_Key of the packet that caused the CNP

	drainNotify    bool // raise SQ_DRAINED when draining ends
	migErrReported bool // PATH_MIG_ERR was reported
	groups         int  // multicast attachments
	opens          int  // additional handles of an XRC target QP

	queued bool // in NIC.active
	timer  nic.Timer[QP]

	// Owner is for use by the driver.
	Owner any
}

// QPConfig has the attributes of a new QP.
type QPConfig struct {
	Type           verbs.QPType
	PD             nic.PD
	SendCQ, RecvCQ *nic.CQ
	SRQ            *nic.SRQ
	XRCD           *nic.XRCD
	Caps           verbs.QPCaps
	SignalAll      bool
}

// sends and receives report whether a QP type has a requester and a responder.
func sends(t verbs.QPType) bool    { return t != verbs.QPTypeXRCRecv }
func receives(t verbs.QPType) bool { return t != verbs.QPTypeXRCSend }

// CreateQP creates a QP in RESET.
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

// DestroyQP destroys a QP. Its work requests do not complete and it sends no more
// packets.
func (n *NIC) DestroyQP(q *QP) error {
	if n.qps.At(q.num) != q {
		return nic.OpError("destroy_qp", q.name(), "%w: destroyed already", verbs.ErrInvalid)
	}
	if q.opens > 0 {
		q.opens-- // other handles are still open
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
	n.DropEvents(func(e *nic.Event) bool { return e.QP == q })
	n.qps.Remove(q.num)
	n.timers.Stop(&q.timer)
	q.resp.dropPending()
	q.reset() // it may still be in NIC.active
	return nil
}

// OpenQP opens a further handle to an XRC target QP.
func (n *NIC) OpenQP(x *nic.XRCD, qpn uint32) (*QP, error) {
	q := n.qps.At(qpn)
	if q == nil || q.typ != verbs.QPTypeXRCRecv || q.xrcd != x {
		return nil, nic.OpError("open_qp", fmt.Sprintf("qp %#x", qpn), "%w in this XRC domain", verbs.ErrNotFound)
	}
	q.opens++
	return q, nil
}

// Num returns the QP number.
func (q *QP) Num() uint32 { return q.num }

// Type returns the QP type.
func (q *QP) Type() verbs.QPType { return q.typ }

// State returns the QP state.
func (q *QP) State() verbs.QPState { return q.state }

// RateBps returns the rate limit set by congestion control, or the line rate.
func (q *QP) RateBps() uint64 { return q.limiter.RateBps(&q.nic.cfg.Congestion) }

func (q *QP) name() string { return fmt.Sprintf("qp %#x", q.num) }

// Ends returns the addresses of the QP's path; they are invalid if it has none.
func (q *QP) Ends() (own, peer netip.Addr) { return q.path.src.Addr(), q.path.dst.Addr() }

// Expected returns the PSN of the next request to execute.
func (q *QP) Expected() wire.PSN { return q.resp.expected }

// HasReceive reports whether a receive is available for the next message.
func (q *QP) HasReceive() bool { return receives(q.typ) && q.receiveReady() }

// Transport returns the transport of the QP's opcodes.
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

// reset restores the state after CreateQP.
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
	q.limiter = rateLimiter{}
	q.notifier = cnpNotifier{}
	q.cnpDue = false
	q.drainNotify = false
	q.mtu = int32(q.nic.MTU().Bytes())
	q.pkey = q.nic.cfg.PKeys[0]
}

// wake queues the QP for sending.
func (q *QP) wake() { q.nic.active.push(q) }

// deadline returns the earliest deadline of the QP.
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

// rearm updates the QP's entry in the NIC's timer heap.
func (q *QP) rearm() { q.nic.timers.set(q, q.deadline()) }

// tick handles expired deadlines of the QP.
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

// fail moves the QP to ERR and flushes the send queue, then the receive queue.
func (q *QP) fail() {
	if q.state == verbs.QPStateErr {
		return
	}
	q.state = verbs.QPStateErr
	q.req.timer, q.req.rnrUntil = mono.Never, mono.Never
	q.flushSends()
	q.flushRecvs()
	if q.srq != nil {
		q.nic.Report(nic.Event{Type: verbs.EventQPLastWQEReached, QP: q})
	}
}

// flushSends completes all send work requests with WR_FLUSH_ERR.
func (q *QP) flushSends() {
	for !q.sq.empty() {
		q.completeSend(q.sq.at(q.sq.head), verbs.WCWRFlushErr)
	}
	q.req.cur = q.sq.tail
	q.req.pkt = 0
}

// flushRecvs completes the claimed receive and all posted receives with
// WR_FLUSH_ERR. Receives of an SRQ stay for its other QPs.
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

// pushRecv adds a completion to the receive CQ. A full CQ fails the QP.
func (q *QP) pushRecv(wc *verbs.WC) bool {
	wc.QPN = verbs.QPN(q.num)
	cq := q.recvCQ
	if q.typ == verbs.QPTypeXRCRecv {
		cq = q.resp.xrcCQ
	}
	if cq == nil {
		return true
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
