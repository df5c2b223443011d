package engine

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// NIC is a RoCEv2 NIC with one port.
type NIC struct {
	nic.Base
	cfg    Config
	policy *Policy
	Count  Counters

	qps   nic.QPTable[QP]
	ahs   int
	mcast map[netip.Addr][]*QP

	active qpQueue // QPs that may have something to send
	timers qpTimers
	holds  delayedAcks // QPs that hold back an ACK
	gsi

	flows map[flow]*cnpNotifier

	port
	dead bool // stopped by the policy UnboundInvalidateFatal

	inPlace bool // packets are built in the memory of the link

	rx      receivedICRC
	parsed  wire.Packet
	scratch wire.Packet
	atomics atomicUnit
}

// gsi is the state of QP 1, the general services interface, and of CNPs for UD senders.
type gsi struct {
	madsIn  []MAD
	madsOut []MAD
	madPSN  wire.PSN
	cnps    []pendingCNP // CNPs for datagram senders
}

// port is the state of the port.
type port struct {
	portDown    bool
	gidsChanged bool // a path may start at an address that was removed
	badPKeys    uint32
	badQKeys    uint32
}

// receivedICRC is the ICRC for the addresses of the last packet that was received for this NIC.
type receivedICRC struct {
	wire.ICRC
	src, dst netip.AddrPort
}

// QP is a queue pair; see requester.go, responder.go and completer.go.
type QP struct {
	nic *NIC
	num uint32
	cfg QPConfig

	state verbs.QPState
	attr  verbs.QPAttr // as last set, without the state
	path  path
	alt   path
	mtu   int32

	sq   sendQueue
	rq   nic.RecvQueue
	req  requester
	resp responder

	congestion

	groups int // multicast attachments
	opens  int // additional handles of an XRC target QP

	queued bool // in NIC.active
	timer  nic.Timer[QP]

	// Owner is for use by the driver.
	Owner any
}

// congestion is the state of congestion control of a QP, as a sender (limiter) and as a receiver.
type congestion struct {
	limiter  rateLimiter
	notifier cnpNotifier
	cnpDue   bool
	cnpPKey  uint16 // P_Key of the packet that caused the CNP
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

// pkey returns the P_Key of the QP's packets.
func (q *QP) pkey() uint16 { return q.nic.cfg.PKeys[q.attr.PKeyIndex] }

// maxMessage is the longest message a request may carry.
const maxMessage = 1 << 31

// pendingCNP is a CNP to the sender of a UD datagram.
type pendingCNP struct {
	path path
	pkey uint16
	qpn  uint32
}

// MADLen is the size of a management datagram.
const MADLen = 256

// MAD is a management datagram to or from QP 1.
type MAD struct {
	Local, Remote netip.Addr
	PKey          uint16
	Data          [MADLen]byte
}

// MTU returns the largest path MTU that the link supports.
func (n *NIC) MTU() verbs.MTU { return verbs.MTUFor(n.cfg.LinkMTU - encapsulation) }

// owns reports whether addr is a RoCEv2 address of the port.
func (n *NIC) owns(addr netip.Addr) bool {
	for i := range n.cfg.GIDs {
		if e := &n.cfg.GIDs[i]; e.Type == verbs.GIDTypeRoCEv2 && e.GID.Addr() == addr {
			return true
		}
	}
	return false
}

// pkeyOK reports whether two P_Keys match: their low 15 bits are equal, and at least one of them has
// full membership.
func (n *NIC) pkeyOK(own, got uint16) bool {
	const full = 0x8000
	return own&^full == got&^full && (own|got)&full != 0
}

func (n *NIC) qkeyOK(own, got uint32) bool { return own == got }

// dropPKey and dropQKey count a packet with a wrong P_Key or Q_Key.
func (n *NIC) dropPKey() {
	n.Count.DropPKey++
	n.badPKeys++
}

func (n *NIC) dropQKey() {
	n.Count.DropQKey++
	n.badQKeys++
}

// hasRequester and hasResponder report whether QPs of this type send and receive requests.
func hasRequester(t verbs.QPType) bool { return t != verbs.QPTypeXRCRecv }
func hasResponder(t verbs.QPType) bool { return t != verbs.QPTypeXRCSend }

func (q *QP) name() string { return fmt.Sprintf("qp %#x", q.num) }

// Transport returns the transport of the QP's opcodes.
func (q *QP) Transport() wire.Transport {
	switch q.cfg.Type {
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

func (q *QP) reliable() bool { return q.cfg.Type != verbs.QPTypeUC && q.cfg.Type != verbs.QPTypeUD }

// packetCount returns the number of packets for n bytes. An empty message has one packet.
func packetCount(n uint32, mtu int32) int32 {
	if n == 0 {
		return 1
	}
	return int32((uint64(n) + uint64(mtu) - 1) / uint64(mtu))
}

// wake queues the QP for sending.
func (q *QP) wake() { q.nic.active.push(q) }

// deadline returns the earliest deadline of the QP.
func (q *QP) deadline() mono.Time {
	at := min(q.req.timer, q.req.rnrUntil)
	if q.limiter.active {
		at = min(at, q.limiter.NextTimer())
		if q.req.paced {
			at = min(at, q.limiter.readyAt)
		}
	}
	return at
}

// rearm moves the QP's entry in the NIC's timer heap to its deadline, if that is earlier.
func (q *QP) rearm() { q.nic.timers.SetIfEarlier(&q.timer, q.deadline()) }

// qpTimers orders QPs by deadline. Most deadlines move later often, so a later
// deadline does not update the heap; due corrects it.
type qpTimers struct{ nic.TimerHeap[QP] }

// due stops the timer of a QP whose deadline has passed and returns the QP, or nil.
func (h *qpTimers) due(now mono.Time) *QP {
	for q := h.PopExpired(now); q != nil; q = h.PopExpired(now) {
		at := q.deadline()
		if at <= now {
			return q
		}
		h.SetIfEarlier(&q.timer, at) // the deadline was moved
	}
	return nil
}

// qpQueue is a FIFO that holds each QP at most once.
type qpQueue struct{ nic.FIFO[*QP] }

// push appends q unless it is in the queue.
func (l *qpQueue) push(q *QP) {
	if !q.queued {
		q.queued = true
		l.Push(q)
	}
}

// pop removes and returns the first QP; nil if the queue is empty.
func (l *qpQueue) pop() *QP {
	q, ok := l.Pop()
	if ok {
		q.queued = false
	}
	return q
}

// ackTimeout returns the interval of the transport timer, or 0 if it is disabled.
func (q *QP) ackTimeout() time.Duration {
	return q.roundTimer(wire.AckTimeout(q.attr.Timeout))
}

// roundTimer rounds a timer up to the tick of the device's clock, which the policy sets to imitate
// a device; 0 means no rounding.
func (q *QP) roundTimer(d time.Duration) time.Duration {
	tick := q.nic.policy.TimerGranularity
	if tick == 0 {
		return d
	}
	return (d + tick - 1) / tick * tick
}

// fail moves the QP to ERR and flushes the send queue, then the receive queue. A QP with an SRQ
// raises LAST_WQE_REACHED.
func (q *QP) fail() {
	if q.state == verbs.QPStateErr {
		return
	}
	q.state = verbs.QPStateErr
	q.req.stopTimers()
	q.flushSends()
	q.flushRecvs()
	if q.cfg.SRQ != nil {
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

// flushRecvs completes the receive of an unfinished message and all posted receives with
// WR_FLUSH_ERR. Receives of an SRQ stay for its other QPs.
func (q *QP) flushRecvs() {
	if h := &q.resp.recv; h.active {
		h.active = false
		q.pushRecv(&verbs.WC{WRID: h.wrID, Status: verbs.WCWRFlushErr})
	}
	for q.rq.Count() > 0 {
		q.pushRecv(&verbs.WC{WRID: q.rq.Peek().WRID, Status: verbs.WCWRFlushErr, Opcode: verbs.WCOpRecv})
		q.rq.Take()
	}
}

// completeSend removes w, the oldest send work request, and adds its completion to the CQ, unless w
// is unsignaled and succeeded. Completions of sends are never solicited. A full CQ fails the QP.
func (q *QP) completeSend(w *sendWQE, status verbs.WCStatus) {
	q.sq.head++
	q.nic.Count.Sends++
	if w.IsSuccessfulSend(status) {
		q.nic.Count.Messages++
	}
	if !w.Signaled() && status == verbs.WCSuccess {
		return
	}
	wc := w.Completion(status, verbs.QPN(q.num))
	if !q.cfg.SendCQ.Push(&wc, false) {
		q.fail()
	}
}

// pushRecv adds a completion to the receive CQ, if there is one. If the CQ is full, the QP fails,
// and pushRecv returns false.
func (q *QP) pushRecv(wc *verbs.WC) bool {
	wc.QPN = verbs.QPN(q.num)
	cq := q.cfg.RecvCQ
	if s := q.resp.xrcSRQ; s != nil {
		cq = s.CQ
	}
	if cq == nil {
		return true
	}
	return q.pushTo(cq, wc, q.resp.solicited)
}

// pushTo adds a receive completion to cq. If cq is full, the QP fails, and pushTo returns false.
func (q *QP) pushTo(cq *nic.CQ, wc *verbs.WC, solicited bool) bool {
	if !cq.Push(wc, solicited) {
		q.fail()
		return false
	}
	q.nic.Count.Recvs++
	return true
}

// checkInvariants panics if the state of a QP is inconsistent. No input from a peer may cause this.
// The checks are cheap and always enabled, because continuing could write to the wrong memory.
func (q *QP) checkInvariants() {
	r := &q.req
	next, sent := r.sinceUna(r.next), r.sinceUna(r.max)
	switch {
	case next > sent || sent > halfPSNSpace:
		q.panicInvariant("PSNs out of order")
	case q.sq.tail-q.sq.head > uint32(len(q.sq.ring)):
		q.panicInvariant("send queue exceeds its ring")
	case r.cur-q.sq.head > q.sq.tail-q.sq.head:
		q.panicInvariant("current request is not in the send queue")
	case q.rq.Overfull():
		q.panicInvariant("receive queue exceeds its ring")
	case q.resp.replays.count > len(q.resp.replays.ring):
		q.panicInvariant("replay entries exceed the ring")
	case q.resp.recv.active && q.resp.recv.filled > q.resp.recv.length:
		q.panicInvariant("receive filled beyond its length")
	}
}

func (q *QP) panicInvariant(what string) {
	panic(fmt.Sprintf("%s in %v: %s: requester %+v, sends %d..%d of %d, receives %v, responder expects %#x, holds %d of %d bytes",
		q.name(), q.state, what, q.req, q.sq.head, q.sq.tail, len(q.sq.ring), &q.rq,
		uint32(q.resp.expected), q.resp.recv.filled, q.resp.recv.length))
}

// atomicUnit executes atomics on memory. The operands are fields of the NIC because
// a closure for each atomic would be allocated.
type atomicUnit struct {
	op               wire.Operation
	swapAdd, compare uint64
	apply            func(uint64) uint64
	word             [8]byte
}

// update executes the current operation on the word at off and returns its previous
// value. It keeps u.result as a function value, to allocate it once.
func (u *atomicUnit) update(mem nic.Memory, off uint64) (uint64, error) {
	if u.apply == nil {
		u.apply = u.result
	}
	return mem.Update(off, u.apply)
}

// result returns the word that the atomic stores if the memory holds v.
func (u *atomicUnit) result(v uint64) uint64 {
	switch {
	case u.op == wire.OpFetchAdd:
		return v + u.swapAdd
	case u.op == wire.OpCompareSwap && v != u.compare:
		return v
	default: // matching COMPARE_SWAP, or ATOMIC WRITE
		return u.swapAdd
	}
}

// hostOrder returns v in the byte order of all supported hosts, little endian. The slice is
// valid until the next call.
func (u *atomicUnit) hostOrder(v uint64) []byte {
	binary.LittleEndian.PutUint64(u.word[:], v)
	return u.word[:]
}
