package model

import (
	"encoding/binary"
	"time"

	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

// rcEffect is what a response does to the model. nil stands for an effect that the specification
// leaves open.
type rcEffect func(now time.Duration)

func rcIgnored(time.Duration) {}

// Defined reports whether the specification defines the effect of a response in this state.
func (m *RCRequester) Defined(p ib.Packet) bool { return m.effectOf(p) != nil }

// Receive takes a response that was sent to the device at the time now. It acknowledges, completes
// or fails requests as the device must.
func (m *RCRequester) Receive(p ib.Packet, now time.Duration) {
	m.options = rcOptions{}
	m.takeCredits(p)
	if effect := m.effectOf(p); effect != nil {
		effect(now)
		if !m.failed {
			m.advance()
		}
	}
}

// takeCredits notes the credits in an ACK of an outstanding packet, in a repetition of the last
// ACK, or in a response to a READ or atomic, which must be the next that the requester expects.
// They permit that many messages after the MSN of the response. A response without a credit count
// removes the limit; without HeedsCredits there never is one.
func (m *RCRequester) takeCredits(p ib.Packet) {
	psn := p.PSN()
	if p.AETH == nil || p.Syndrome()>>5 != uint8(ib.AckPositive) || psn.Sub(m.una.Add(-1)) < 0 || psn.Sub(m.end) >= 0 {
		return
	}
	if r := m.firstUnanswered(); p.Opcode() != ib.OpAcknowledge && (r == nil || psn != r.expects()) {
		return
	}
	n, counted := ib.Credits(p.Syndrome() & 31)
	m.credits.limited = counted && m.HeedsCredits
	if counted {
		m.credits.limit = max(m.credits.limit, int(p.MSN())+n)
	}
}

// effectOf returns the effect of a response; nil if the specification leaves it open. A PSN that is
// not outstanding has no effect.
func (m *RCRequester) effectOf(p ib.Packet) rcEffect {
	if psn := p.PSN(); m.failed || psn.Sub(m.una) < 0 || psn.Sub(m.end) >= 0 {
		return rcIgnored
	}
	if m.next != m.end { // the device waits for an RNR timer
		return nil
	}
	if info, _ := p.Info(); info.Kind == ib.KindAcknowledge {
		return m.effectOfAck(p)
	}
	return m.effectOfAnswer(p)
}

// firstUnanswered returns the first READ or atomic on the wire without all its responses, or nil.
func (m *RCRequester) firstUnanswered() *RCRequest {
	for _, r := range m.queue {
		if r.begun && r.hasResponse() && !m.isDone(r) {
			return r
		}
	}
	return nil
}

// expects returns the PSN of the next response of a READ or atomic.
func (r *RCRequest) expects() ib.PSN { return r.psn.Add(r.answered) }

// effectOfAck returns the effect of an ACK, NAK or RNR NAK.
func (m *RCRequester) effectOfAck(p ib.Packet) rcEffect {
	psn, first := p.PSN(), m.firstUnanswered()
	// beyond: psn is after the next response to the first unanswered READ or atomic. inside: psn is
	// one of that request.
	beyond := first != nil && psn.Sub(first.expects()) > 0
	inside := first != nil && psn.Sub(first.psn) >= 0 && psn.Sub(first.psn) < first.packets(m.MTU)
	value := p.Syndrome() & 31
	switch ib.AckKind(p.Syndrome() >> 5) {
	case ib.AckPositive:
		if beyond || inside {
			return m.impliedNak(first, inside)
		}
		return func(now time.Duration) { m.acknowledge(psn.Add(1), now) }
	case ib.AckRNR:
		if beyond || inside || !m.requestOf(psn).needsReceive() {
			return nil
		}
		return func(now time.Duration) { m.receiverNotReady(psn, value, now) }
	case ib.AckNegative:
		return m.effectOfNak(psn, ib.NakCode(value), beyond, inside)
	}
	return m.mayFailOldest(psn, func(s verbs.WCStatus) bool { return s == verbs.WCBadRespErr })
}

// effectOfNak returns the effect of a NAK. beyond and inside tell where its PSN is relative to the
// first unanswered READ or atomic.
func (m *RCRequester) effectOfNak(psn ib.PSN, code ib.NakCode, beyond, inside bool) rcEffect {
	status, fatal := map[ib.NakCode]verbs.WCStatus{
		ib.NakInvalidRequest: verbs.WCRemInvReqErr, ib.NakRemoteAccess: verbs.WCRemAccessErr, ib.NakRemoteOp: verbs.WCRemOpErr,
	}[code]
	switch {
	case code != ib.NakSequence && !fatal:
		return m.mayFailOldest(psn, func(s verbs.WCStatus) bool { return s != verbs.WCSuccess })
	case beyond && inside, beyond && fatal:
		return nil
	case beyond:
		return m.impliedNak(m.firstUnanswered(), false)
	case fatal:
		return func(now time.Duration) {
			m.acknowledge(psn, now)
			m.fail(status)
		}
	}
	return func(now time.Duration) {
		m.acknowledge(psn, now)
		m.repeat()
	}
}

// mayFailOldest returns the effect of a response with a reserved syndrome: the oldest request may
// fail with a status for which status returns true, or not at all. It is defined for the oldest PSN
// only, nil for others.
func (m *RCRequester) mayFailOldest(psn ib.PSN, status func(verbs.WCStatus) bool) rcEffect {
	if psn != m.una {
		return nil
	}
	return func(time.Duration) { m.options.fail = status }
}

// impliedNak returns the effect of an ACK that shows that a response of r was lost: requests
// before r are acknowledged, and r is retransmitted. An ACK with a PSN of r itself may also
// be a bad response.
func (m *RCRequester) impliedNak(r *RCRequest, inside bool) rcEffect {
	return func(now time.Duration) {
		m.acknowledge(r.psn, now)
		if !inside {
			m.repeat()
			return
		}
		m.options.repeat = true
		m.options.fail = func(s verbs.WCStatus) bool { return s == verbs.WCBadRespErr }
	}
}

// repeat requires a retransmission from una on. The device may, but need not, retransmit if it has
// done so since the last progress, if una is in the window of the last retransmission (unless
// Should is set), or if the retries may be exhausted.
func (m *RCRequester) repeat() {
	sameWindow := !m.Should && m.una.Sub(m.window) < 0
	if m.retry.repeated || sameWindow || m.retry.mostLosses >= m.RetryCnt {
		m.options.repeat = true
		return
	}
	m.retry.mostLosses++
	m.retry.repeated, m.retry.exact = true, false
	m.next, m.window = m.una, m.end
}

// receiverNotReady takes an RNR NAK: the device must retransmit from psn after the RNR timer of
// code, or fail the request if no RNR retry is left.
func (m *RCRequester) receiverNotReady(psn ib.PSN, code uint8, now time.Duration) {
	m.acknowledge(psn, now)
	m.retry.rnrs++
	if m.RNRRetry < 7 && m.retry.rnrs > m.RNRRetry {
		m.fail(verbs.WCRNRRetryExcErr)
		return
	}
	m.next, m.retry.exact = m.una, true
	m.retry.rnrUntil = now + ib.RNRTimer(code)
	m.retry.losses = 0 // the specification leaves open whether an RNR NAK resets the count
}

// acknowledge records that the peer has acknowledged the SENDs and WRITEs before PSN upTo. It ends a
// retransmission: the next packet to send is a new one. The caller must make sure that no unanswered
// READ or atomic precedes upTo.
func (m *RCRequester) acknowledge(upTo ib.PSN, now time.Duration) {
	if upTo.Sub(m.una) <= 0 {
		return
	}
	m.una, m.next = upTo, m.end
	m.retry = rcRetry{timerStart: now}
	m.advance()
}

// effectOfAnswer returns the effect of a READ response or atomic acknowledge; nil if the
// specification leaves the effect open.
func (m *RCRequester) effectOfAnswer(p ib.Packet) rcEffect {
	psn, r := p.PSN(), m.firstUnanswered()
	info, _ := p.Info()
	badResponse := func(time.Duration) { m.fail(verbs.WCBadRespErr) }
	switch {
	case r == nil || psn.Sub(r.psn) < 0:
		if psn == m.una {
			return badResponse
		}
		return nil
	case psn == r.expects() && m.fits(r, p):
		return func(now time.Duration) { m.answer(r, p, now) }
	case m.una != r.expects(): // the specification leaves open whether an invalid response acknowledges earlier requests
		return nil
	case psn != r.expects():
		return func(time.Duration) { m.options.repeat = true }
	case (info.Kind == ib.KindAtomicAcknowledge) != r.isAtomic():
		return badResponse
	case p.AETH != nil && p.Syndrome()>>5 != uint8(ib.AckPositive):
		return m.failOrRepeat(r)
	case !r.isAtomic() && r.answered == 0 && !r.repeated && (info.Position == ib.Middle || info.Position == ib.Last):
		return badResponse
	case len(p.Payload) > r.Len-r.answered*m.MTU:
		return func(time.Duration) {
			r.Touched = true
			m.fail(verbs.WCGeneralErr)
		}
	}
	return m.failOrRepeat(r)
}

// failOrRepeat returns the effect of an invalid response to r: an error or a retransmission. The
// device may also drop the response.
func (m *RCRequester) failOrRepeat(r *RCRequest) rcEffect {
	return func(time.Duration) {
		r.Touched = true
		m.options.repeat = true
		m.options.fail = func(s verbs.WCStatus) bool { return s != verbs.WCSuccess }
	}
}

// fits reports whether p is a valid next response of r. After a READ was requested again from a
// response on, that response may begin a new message or continue the old one.
func (m *RCRequester) fits(r *RCRequest, p ib.Packet) bool {
	info, _ := p.Info()
	if p.AETH != nil && p.Syndrome()>>5 != uint8(ib.AckPositive) {
		return false
	}
	if info.Kind == ib.KindAtomicAcknowledge {
		return r.isAtomic()
	}
	n := r.packets(m.MTU)
	want := rcPosition(r.answered, n)
	restarts := r.repeated && r.restart == r.answered && info.Position == rcPosition(0, n-r.answered)
	return !r.isAtomic() && (info.Position == want || restarts) && len(p.Payload) == min(m.MTU, r.Len-r.answered*m.MTU)
}

// answer takes the next response of r, which acknowledges all earlier requests.
func (m *RCRequester) answer(r *RCRequest, p ib.Packet, now time.Duration) {
	m.acknowledge(r.expects(), now)
	r.answered++
	r.Touched = true
	if r.isAtomic() {
		r.Result = binary.NativeEndian.AppendUint64(nil, *p.AtomicAck.Original)
	} else {
		r.Result = append(r.Result, p.Payload...)
	}
	m.acknowledge(r.expects(), now)
}

// RCAnswer is the next response of the peer to the first unanswered READ or atomic.
type RCAnswer struct {
	Request *RCRequest
	PSN     ib.PSN
	// Index is that of the response, of Total.
	Index, Total int
	// Restarted: the READ was requested again from this response on.
	Restarted bool
	// Oldest: no earlier request is outstanding.
	Oldest bool
}

// NextAnswer returns the response that is due next; false if no READ or atomic is outstanding.
func (m *RCRequester) NextAnswer() (RCAnswer, bool) {
	r := m.firstUnanswered()
	if r == nil {
		return RCAnswer{}, false
	}
	return RCAnswer{
		Request: r, PSN: r.expects(), Index: r.answered, Total: r.packets(m.MTU),
		Restarted: r.repeated && r.restart == r.answered, Oldest: r.expects() == m.una,
	}, true
}
