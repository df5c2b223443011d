package model

import (
	"math"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

// RCRequesterAttr are the attributes of a queue pair that its requester uses.
type RCRequesterAttr struct {
	MTU         int
	FirstPSN    ib.PSN
	MaxRdAtomic int
	RetryCnt    int
	RNRRetry    int // 7 is unlimited
	// Timeout is the shortest time after which the transport timer may expire; 0 if it is off.
	Timeout time.Duration
	// SignalAll: every request completes visibly.
	SignalAll bool
	// HeedsCredits: the requester obeys the credits in responses.
	HeedsCredits bool
	// Should: the requester does what it should do, too: it retransmits at once after a second
	// sequence NAK in the same window, and after one that follows a timeout.
	Should bool
	// AnyCompare: the unused compare field of a FETCH_ADD may have any value.
	AnyCompare bool
}

// RCRequester is the requester of an RC queue pair. The caller tells it the posted requests, the
// responses that the device received and the packets that it sent. The model tells
// which packets the device may and must send, and the completions.
//
// PSNs from una to before end are outstanding. The device sends the packet with PSN next: a
// retransmission if it is before end, else the first packet of a new request.
type RCRequester struct {
	RCRequesterAttr
	queue          []*RCRequest // posted, not completed
	una, next, end ib.PSN
	completions    []RCSendCompletion
	failed         bool
	draining       bool // in SQD: no new request begins
	retry          rcRetry
	options        rcOptions
	lastSent       ib.Packet
	window         ib.PSN // the end of the packets that the last NAK caused to be retransmitted
	credits        rcCredits
}

// rcCredits is the state of end-to-end flow control. Requests are counted from 1 on.
type rcCredits struct {
	posted, completed int // numbers of the last posted and the last completed request on the wire
	limited           bool
	limit             int    // number of the last request that may use a receive
	probe             ib.PSN // of the last packet that was sent beyond the limit
}

// rcRetry is the state of retransmissions.
type rcRetry struct {
	// losses are the retries since the last progress that the device must have counted, and
	// mostLosses those that it may have counted: a device may count sequence NAKs too.
	losses, mostLosses int
	rnrs               int           // RNR NAKs since the last progress
	rnrUntil           time.Duration // nothing is sent before this time
	timerStart         time.Duration
	repeated           bool // the packets from una on were retransmitted after a NAK
	// exact: the retransmission that is due starts at next. Else it may start earlier in
	// the message.
	exact bool
}

// rcOptions are reactions to the last response that the device may choose.
type rcOptions struct {
	repeat bool // retransmission from una on
	// fail reports whether the oldest request may complete with this error.
	fail func(verbs.WCStatus) bool
}

// NewRCRequester returns the model of a requester in RTS. una is the oldest unacknowledged PSN,
// next the PSN to send next, and end the PSN after all that were sent.
func NewRCRequester(a RCRequesterAttr) *RCRequester {
	return &RCRequester{
		RCRequesterAttr: a, una: a.FirstPSN, next: a.FirstPSN, end: a.FirstPSN,
		window: a.FirstPSN, credits: rcCredits{probe: a.FirstPSN.Add(-1)},
	}
}

// RCSendCompletion is an expected completion.
type RCSendCompletion struct {
	Request *RCRequest
	Status  verbs.WCStatus
	// AnyError: every status but success is correct. Status is then WCGeneralErr.
	AnyError bool
}

// Post appends a request to the send queue. In ERR it is flushed.
func (m *RCRequester) Post(r *RCRequest) {
	if m.failed {
		m.complete(r, verbs.WCWRFlushErr)
		return
	}
	if !r.isLocal() {
		m.credits.posted++
		r.number = m.credits.posted
	}
	m.queue = append(m.queue, r)
	m.advance()
}

// MSN returns the number of requests that the responder has completed when it has received
// the packet with this PSN.
func (m *RCRequester) MSN(psn ib.PSN) int {
	n := m.credits.completed
	for _, r := range m.queue {
		if r.begun && !r.isLocal() && psn.Sub(r.psn.Add(r.packets(m.MTU)-1)) >= 0 {
			n = r.number
		}
	}
	return n
}

// LastBegun returns the number of the newest request that was sent, as MSN counts them.
func (m *RCRequester) LastBegun() int {
	n := m.credits.completed
	for _, r := range m.queue {
		if r.begun {
			n = max(n, r.number)
		}
	}
	return n
}

// lacksCredit reports whether only one packet of the request may be sent, to ask for credits.
func (m *RCRequester) lacksCredit(r *RCRequest) bool {
	return m.credits.limited && r.needsReceive() && r.number > m.credits.limit
}

// Failed reports that the queue pair is in ERR.
func (m *RCRequester) Failed() bool { return m.failed }

// Outstanding returns the oldest unacknowledged PSN, and the number of outstanding PSNs.
func (m *RCRequester) Outstanding() (oldest ib.PSN, n int) { return m.una, m.end.Sub(m.una) }

// NextPSN returns the PSN of the next new packet.
func (m *RCRequester) NextPSN() ib.PSN { return m.end }

// Queue returns the requests that have not completed, oldest first.
func (m *RCRequester) Queue() []*RCRequest { return m.queue }

// Draining stops or resumes the start of new requests, in SQD.
func (m *RCRequester) Draining(on bool) {
	m.draining = on
	m.advance()
}

// Idle reports that no PSN is outstanding.
func (m *RCRequester) Idle() bool { return m.una == m.end }

// ToError moves the queue pair to ERR: all requests are flushed.
func (m *RCRequester) ToError() {
	if !m.failed {
		m.flush()
	}
}

// TakeCompletions returns the completions since the last call.
func (m *RCRequester) TakeCompletions() []RCSendCompletion {
	all := m.completions
	m.completions = nil
	return all
}

func (m *RCRequester) complete(r *RCRequest, status verbs.WCStatus) {
	m.completions = append(m.completions, RCSendCompletion{Request: r, Status: status})
}

// fail completes the oldest request with an error and flushes the others.
func (m *RCRequester) fail(status verbs.WCStatus) {
	anyError := status == verbs.WCGeneralErr
	m.completions = append(m.completions, RCSendCompletion{m.queue[0], status, anyError})
	m.queue = m.queue[1:]
	m.flush()
}

// flush moves the queue pair to ERR, and completes all requests with WR_FLUSH_ERR.
func (m *RCRequester) flush() {
	for _, r := range m.queue {
		m.complete(r, verbs.WCWRFlushErr)
	}
	m.queue, m.failed, m.options = nil, true, rcOptions{}
	m.retry.rnrUntil = 0
}

// MayFail reports whether the oldest request may complete with this error now, although no error is
// required: because of the last response, or because the transport timer may have expired.
func (m *RCRequester) MayFail(status verbs.WCStatus, now time.Duration) bool {
	if m.failed || len(m.queue) == 0 {
		return false
	}
	if m.options.fail != nil && m.options.fail(status) {
		return true
	}
	retries := m.options.repeat || m.timerExpired(now)
	return status == verbs.WCRetryExcErr && retries && m.retry.mostLosses >= m.RetryCnt
}

// Fail completes the oldest request with an error that MayFail permits.
func (m *RCRequester) Fail(status verbs.WCStatus) { m.fail(status) }

// MustGiveUp reports that the next expiry of the transport timer fails the oldest request.
func (m *RCRequester) MustGiveUp() bool { return m.retry.losses >= m.RetryCnt }

// timerExpired reports whether the transport timer may have expired.
func (m *RCRequester) timerExpired(now time.Duration) bool {
	return m.Timeout > 0 && m.una != m.end && m.retry.rnrUntil == 0 && now >= m.retry.timerStart+m.Timeout
}

// WaitsForRNRTimer reports that the next packet is due only when an RNR timer has expired.
func (m *RCRequester) WaitsForRNRTimer() bool { return m.retry.rnrUntil > 0 }

// advance executes local requests whose turn it is, and completes requests. One that must fail
// fails when it is the oldest, but not in SQD, where it does not begin.
func (m *RCRequester) advance() {
	for i, r := range m.queue {
		if !r.begun {
			if may, _ := m.mayBegin(i); !r.isLocal() || !may {
				break
			}
			r.begun = true
			r.execute()
		}
	}
	for len(m.queue) > 0 {
		r := m.queue[0]
		switch {
		case r.Fails != verbs.WCSuccess && !m.draining:
			m.fail(r.Fails)
			return
		case !r.begun || !m.isDone(r):
			return
		}
		if m.SignalAll || r.Flags&verbs.SendSignaled != 0 {
			m.complete(r, verbs.WCSuccess)
		}
		m.credits.completed = max(m.credits.completed, r.number)
		m.queue = m.queue[1:]
		m.advance()
	}
}

// isDone reports whether a request that has begun is acknowledged, answered or executed.
func (m *RCRequester) isDone(r *RCRequest) bool {
	switch {
	case r.isLocal():
		return true
	case r.hasResponse():
		return r.answered == r.packets(m.MTU)
	}
	return r.psn.Add(r.packets(m.MTU)).Sub(m.una) <= 0
}

// mayBegin reports whether the i-th request of the queue may begin now, and whether the device must
// begin it. A local invalidate waits until all earlier requests have completed. The specification
// leaves open whether FLUSH and ATOMIC WRITE count for max_rd_atomic and a fence, like READs and
// atomics.
func (m *RCRequester) mayBegin(i int) (may, must bool) {
	r, reads, unanswered := m.queue[i], 0, 0
	if r.Opcode == verbs.OpLocalInv && i > 0 {
		return false, false
	}
	for _, earlier := range m.queue[:i] {
		waits := !earlier.begun && !earlier.isLocal()
		if waits || earlier.Fails != verbs.WCSuccess {
			return false, false
		}
		if earlier.hasResponse() && !m.isDone(earlier) {
			unanswered++
			if earlier.isRead() {
				reads++
			}
		}
	}
	limit := math.MaxInt // of unanswered requests: no limit
	switch {
	case m.draining || r.Fails != verbs.WCSuccess:
		return false, false
	case r.Flags&verbs.SendFence != 0:
		limit = 1
	case r.hasResponse():
		limit = m.MaxRdAtomic
	}
	isLimited := r.isRead() || r.Flags&verbs.SendFence != 0
	return reads < limit || !isLimited, unanswered < limit
}

// RCSend is a packet that the device may send.
type RCSend struct {
	Packet  ib.Packet
	request *RCRequest
	index   int // of the packet in the request
	// startsRetry: the packet starts a retransmission that is permitted and not required.
	startsRetry bool
}

// Permitted returns the packets that the device may send next, also to start a retransmission.
func (m *RCRequester) Permitted(now time.Duration) (all []RCSend) {
	if m.failed || now < m.retry.rnrUntil {
		return nil
	}
	if m.next != m.end {
		all = append(all, m.packetAt(m.next, false))
		if !m.retry.exact { // the retransmission may start earlier in the message
			all = append(all, m.earlierStarts(false)...)
		}
	} else if r, _ := m.nextRequest(); r != nil {
		all = append(all, m.newPacket(r))
	}
	byTimer := m.timerExpired(now) && m.retry.losses < m.RetryCnt
	if m.una != m.end && (m.options.repeat || byTimer) {
		all = append(all, m.packetAt(m.una, true))
		all = append(all, m.earlierStarts(true)...)
	}
	return all
}

// newPacket returns the first packet of r that was not sent before.
func (m *RCRequester) newPacket(r *RCRequest) RCSend {
	if !r.begun {
		r.psn = m.end
	}
	return m.packetOf(r, m.end.Sub(r.psn), false)
}

// packetOf returns the i-th packet of a request.
func (m *RCRequester) packetOf(r *RCRequest, i int, startsRetry bool) RCSend {
	p := r.packet(i, m.MTU)
	if r.Opcode == verbs.OpAtomicFetchAdd && m.AnyCompare {
		p.AtomicETH.Compare = nil
	}
	return RCSend{Packet: p, request: r, index: i, startsRetry: startsRetry}
}

// nextRequest returns the request that the device may continue or begin to send next; nil if there
// is none. The device must send it unless a local request is before it, it lacks a credit, or it
// has not begun and mayBegin says that it need not begin.
func (m *RCRequester) nextRequest() (next *RCRequest, must bool) {
	must = true
	for i, r := range m.queue {
		partlySent := r.begun && !r.isLocal() && r.psn.Add(r.packets(m.MTU)).Sub(m.end) > 0
		switch {
		case r.begun && !partlySent:
		case r.isLocal():
			must = false
		case partlySent:
			return m.withCredit(r, must)
		default:
			may, mustBegin := m.mayBegin(i)
			if !may {
				return nil, false
			}
			return m.withCredit(r, must && mustBegin)
		}
	}
	return nil, false
}

// withCredit returns r and must if r has a credit. If it has none, r may be sent only while no
// packet beyond the credits is outstanding, and need not be.
func (m *RCRequester) withCredit(r *RCRequest, must bool) (*RCRequest, bool) {
	switch {
	case !m.lacksCredit(r):
		return r, must
	case m.una != m.end && m.credits.probe.Sub(m.una) >= 0:
		return nil, false
	}
	return r, false
}

// packetAt returns the packet with this PSN, which was sent before or belongs to a request that
// was.
func (m *RCRequester) packetAt(psn ib.PSN, startsRetry bool) RCSend {
	r := m.requestOf(psn)
	return m.packetOf(r, psn.Sub(r.psn), startsRetry)
}

// earlierStarts returns the packets before una of the same SEND or WRITE: a retransmission may
// start with each of them.
func (m *RCRequester) earlierStarts(startsRetry bool) (all []RCSend) {
	r := m.requestOf(m.una)
	if r.hasResponse() {
		return nil
	}
	for psn := r.psn; psn != m.una; psn = psn.Add(1) {
		all = append(all, m.packetAt(psn, startsRetry))
	}
	return all
}

// requestOf returns the request that has begun and to which an outstanding PSN belongs.
func (m *RCRequester) requestOf(psn ib.PSN) *RCRequest {
	i := slices.IndexFunc(m.queue, func(r *RCRequest) bool {
		return r.begun && !r.isLocal() && psn.Sub(r.psn) >= 0 && psn.Sub(r.psn) < r.packets(m.MTU)
	})
	return m.queue[i]
}

// Sent notes that the device has sent a permitted packet: it counts retries, starts the transport
// timer, and advances the PSNs.
func (m *RCRequester) Sent(s RCSend, got ib.Packet, now time.Duration) {
	r, psn := s.request, got.PSN()
	if s.startsRetry {
		if !m.options.repeat {
			m.retry.losses++
		}
		m.retry.mostLosses++
		// A device that also follows what the specification recommends (Should) must retransmit
		// again after a sequence NAK that follows a timeout.
		m.retry.repeated = m.options.repeat || !m.Should
		m.options.repeat, m.window = false, m.end
	}
	if psn == m.una {
		m.retry.timerStart = now
	}
	m.retry.rnrUntil, m.retry.exact = 0, true
	r.begun = true
	if r.hasResponse() && r.answered == s.index && psn.Sub(m.end) < 0 { // responses start anew at s.index
		r.restart, r.repeated = s.index, true
	}
	m.next = psn.Add(1)
	if r.hasResponse() {
		m.next = r.psn.Add(r.packets(m.MTU))
	}
	// The packets of a message that has begun follow without a pause, if it has a credit.
	end := r.psn.Add(r.packets(m.MTU))
	if m.lacksCredit(r) {
		end = psn.Add(1)
		m.credits.probe = psn
	}
	if end.Sub(m.end) > 0 {
		m.end = end
	}
	m.lastSent = got
	m.advance()
}

// Missing returns the packet that the device should have sent by now: the next of a retransmission,
// or else of the requests in the send queue. missing is false if there is none.
func (m *RCRequester) Missing() (want ib.Packet, missing bool) {
	switch {
	case m.failed || m.retry.rnrUntil > 0:
		return want, false
	case m.next != m.end:
		return m.packetAt(m.next, false).Packet, true
	}
	if r, must := m.nextRequest(); must {
		return m.newPacket(r).Packet, true
	}
	return want, false
}

// LacksAckReq reports that the last packet on the wire ends a SEND or WRITE that is not
// acknowledged, and does not ask for an ACK.
func (m *RCRequester) LacksAckReq() bool {
	if m.failed || m.una == m.end || m.next != m.end || m.requestOf(m.end.Add(-1)).hasResponse() {
		return false
	}
	return m.lastSent.PSN() == m.end.Add(-1) && !m.lastSent.HasAckReq()
}

// EndOfReactions ends the time in which the device may react at once to the last response.
func (m *RCRequester) EndOfReactions() { m.options = rcOptions{} }
