package roce

import (
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// timeout4ms is the code of a local ACK timeout of 4.2 ms.
const timeout4ms = 10

// withTimeoutAndRetries returns a Modify function that sets the ACK timeout code and retry count.
func withTimeoutAndRetries(code, retries uint8) func(*verbs.QPAttr) {
	return func(a *verbs.QPAttr) { a.Timeout, a.RetryCnt = code, retries }
}

var timeoutCases = overRC.Cases([]conformance.Case{{
	ID: "rc/tmo/unanswered-request-is-repeated", Cite: ibta("C9-139", "rc/tmo/1"),
	Title:   "An unanswered request is retransmitted",
	Sends:   "no response to a SEND, a WRITE and a READ on separate connections; the correct response to the retransmission",
	Expects: "the request is retransmitted, and succeeds",
	Defects: []string{"NoTransportTimer"}, Run: OnPort(func(p *Port) {
		connect := func() *Conn { return p.connect(Setup{Modify: withTimeoutAndRetries(timeout4ms, 7)}) }
		c := connect()
		expectRetransmittedRequest(c, c.SendWR(1, 8), c.peerAck(0, 1))
		c = connect()
		expectRetransmittedRequest(c, c.WriteWR(1, 2500), c.peerAck(2, 1))
		c = connect()
		expectRetransmittedRequest(c, c.ReadWR(1, 8), ib.ReadResponseOnly(c.DevicePSN(0), 1, Data(8)))
	}),
}, {
	ID: "rc/tmo/not-before-the-timeout", Cite: ibta("C9-140", "rc/tmo/2"),
	Title:   "Nothing is retransmitted before the timeout",
	Sends:   "nothing to a SEND, with timeout codes 8, 12 and 15",
	Expects: "its n-th retransmission not before n times 4.096 us * 2^code",
	Defects: []string{"AdaptiveTimeout"}, Run: OnPort(func(p *Port) {
		for _, code := range []uint8{8, 12, 15} {
			c := p.connect(Setup{Modify: withTimeoutAndRetries(code, 7), exactTimeout: true})
			begun := c.Now() // before the post: the bench can only add to the measured time
			c.request(0, c.SendWR(1, 8))
			for n := range 4 {
				c.expectAll(c.wantSend(0, 8))
				took, least := c.Now()-begun, time.Duration(n+1)*ib.AckTimeout(code)
				c.Check(took >= least, fmt.Sprintf("retransmission %d not before %v with timeout code %d", n+1, least, code), "after %v", took)
			}
			c.completeWith(c.peerAck(0, 1), 1)
		}
	}),
}, {
	ID: "rc/tmo/not-after-four-timeouts", Cite: ibta("C9-140", "rc/tmo/2"), Level: conformance.Should,
	Title:   "An unanswered request is retransmitted within four timeouts",
	Sends:   "nothing to a SEND, with timeout codes 7 and 12",
	Expects: "retransmissions no more than four timeouts apart: 2.1 ms and 67 ms",
	Defects: []string{"JiffyTimers", "TimeoutBacksOff"}, Run: OnPort(func(p *Port) {
		for _, code := range []uint8{7, 12} {
			c := p.connect(Setup{Modify: withTimeoutAndRetries(code, 7), exactTimeout: true})
			c.request(0, c.SendWR(1, 8))
			var apart []time.Duration
			for last := c.Now(); len(apart) < 7; last = c.Now() {
				c.expectAll(c.wantSend(0, 8))
				apart = append(apart, c.Now()-last)
			}
			c.Send(c.peerAck(0, 1))
			most, longest := 4*ib.AckTimeout(code), slices.Max(apart)
			if !c.Virtual {
				// A busy bench delays single intervals, rarely two in a row. The shortest of the
				// first four and of the last three are those of the device.
				longest = max(slices.Min(apart[:4]), slices.Min(apart[4:]))
			}
			c.Check(longest <= most, fmt.Sprintf("retransmissions at most %v apart with timeout code %d", most, code), "%v", longest)
		}
	}),
}, {
	ID: "rc/tmo/zero-switches-the-timer-off", Cite: ibta("C9-140", "rc/tmo/3"),
	Title:   "With timeout 0 nothing is retransmitted",
	Sends:   "nothing to a SEND for a long time, then its ACK",
	Expects: "nothing, then success",
	Defects: []string{"TimeoutZeroFires"}, Run: onConn(Setup{}, func(c *Conn) {
		c.request(0, c.SendWR(1, 8))
		c.Sleep(50 * time.Millisecond) // in real time, expectSilence does not wait this long
		c.expectSilence(time.Minute)
		c.completeWith(c.peerAck(0, 1), 1)
	}),
}, {
	ID: "rc/tmo/retry-count-is-exact", Cite: ibta("V1C09-142#01, V1C09-143#01", "rc/tmo/4"),
	Title:   "An unanswered request is retransmitted retry_cnt times, and no more",
	Sends:   "nothing to a SEND, with retry_cnt 0, 1, 2, 3 and 6, and with 2 that was set in SQD",
	Expects: "the SEND is retransmitted as many times, then fails, and nothing more is sent",
	Defects: []string{"RetryOffByOne", "NewRetriesLate"}, Run: OnPort(func(p *Port) {
		for _, n := range []uint8{0, 1, 2, 3, 6} {
			c := p.connect(Setup{Modify: withTimeoutAndRetries(timeout4ms, n)})
			exhaustRetries(c)
			c.expectErrorCompletion(1)
		}
		c := p.connect(Setup{Modify: withTimeoutAndRetries(timeout4ms, 7)})
		c.setRetriesInSQD(2, 7)
		exhaustRetries(c)
		c.expectErrorCompletion(1)
	}),
}, {
	ID: "rc/tmo/exhausted-retries-end-the-request-and-the-qp", Cite: ibta("V1C09-142#01, V1C09-143#01", "rc/tmo/4"),
	Title:   "A request that exhausts its retries completes with RETRY_EXC_ERR, later ones are flushed, and the queue pair goes to ERR",
	Sends:   "nothing to a SEND, a READ and a WRITE, with retry_cnt 1",
	Expects: "RETRY_EXC_ERR for the first, WR_FLUSH_ERR for the others, and the queue pair in ERR",
	Defects: []string{"RetryExcHangs"}, Run: onConn(Setup{Modify: withTimeoutAndRetries(timeout4ms, 1)}, func(c *Conn) {
		c.PostSend(c.QP, c.SendWR(1, 8), c.ReadWR(2, 8), c.WriteWR(3, 8))
		c.ExpectCompletion(1, verbs.WCRetryExcErr)
		c.ExpectCompletions(verbs.WCWRFlushErr, 2, 3)
		c.AwaitState(c.QP, verbs.QPStateErr)
	}),
}, {
	ID: "rc/tmo/seven-retries-are-seven", Cite: ibta("", "rc/tmo/5"),
	Title:   "A retry_cnt of 7 means seven retries, not infinitely many",
	Sends:   "nothing to a SEND, with retry_cnt 7",
	Expects: "seven retransmissions of the SEND and no more, then RETRY_EXC_ERR",
	Defects: []string{"RetryCount7Forever"}, Run: onConn(Setup{Modify: withTimeoutAndRetries(timeout4ms, 7)}, func(c *Conn) {
		exhaustRetries(c)
		c.ExpectCompletion(1, verbs.WCRetryExcErr)
	}),
}, {
	ID: "rc/tmo/progress-reloads-the-count", Cite: ibta("", "rc/tmo/6"),
	Title:   "Progress resets the retry counter",
	Sends:   "with retry_cnt 1, to a WRITE of five packets, an ACK for one packet more after each retransmission; to a READ of five, one response more",
	Expects: "five retransmissions, and success",
	Defects: []string{"RetryCountShared", "ReadProgressKeepsRetries"}, Run: OnPort(func(p *Port) {
		c := p.connect(Setup{Modify: withTimeoutAndRetries(timeout4ms, 1)})
		all := c.request(0, c.WriteWR(1, 5000))
		for k := range all {
			c.expectRetransmission(all, k)
			c.Send(c.peerAck(k, uint32(k/4)))
		}
		c.ExpectCompletion(1, verbs.WCSuccess)
		c.ExpectState(c.QP, verbs.QPStateRTS)
		c = p.connect(Setup{Modify: withTimeoutAndRetries(timeout4ms, 1)})
		bytes := Data(5000)
		for k, response := range c.startRead(bytes) {
			c.expect(ib.Op(ib.OpReadRequest).WithPSN(c.DevicePSN(k)))
			c.Send(response)
		}
		c.expectReadDone(bytes)
	}),
}, {
	ID: "rc/tmo/only-progress-reloads-the-count", Cite: ibta("V1C09-142#01, V1C09-143#01", "rc/tmo/4", "rc/tmo/6"),
	Title:   "Responses that acknowledge nothing do not reset the retry counter",
	Sends:   "with retry_cnt 2, to each transmission of a READ of three packets: its last response only, an ACK of the SEND after it, a NAK for a sequence error, an ACK of the SEND before it, or one of a PSN that was not sent",
	Expects: "two retransmissions, then RETRY_EXC_ERR for the READ",
	Defects: []string{"ImpliedNAKUsesNoRetry", "PassedReadUsesNoRetry", "NAKRestoresRetries", "StaleAckRestoresRetries", "GhostAckRestoresRetries"},
	Run: onEachConn(Setup{Modify: withTimeoutAndRetries(timeout4ms, 2)}, []string{"LAST", "ACK after", "NAK", "ACK before", "ACK of nothing"}, func(c *Conn, kind string) {
		c.request(0, c.SendWR(1, 8))
		c.completeWith(c.peerAck(0, 1), 1)
		c.PostSend(c.QP, c.ReadWR(2, 3*MTU), c.SendWR(3, 8))
		response := map[string]ib.Packet{
			"LAST": ib.ReadResponses(c.DevicePSN(1), 2, Data(3*MTU), MTU)[2], "ACK after": c.peerAck(4, 3),
			"NAK": c.peerNak(1, ib.NakSequence, 1), "ACK before": c.peerAck(0, 1), "ACK of nothing": c.peerAck(50, 3),
		}[kind]
		isRead := func(a *Arrival) bool { return c.isForPeer(a) && a.PSN() == c.DevicePSN(1) }
		for range 3 {
			c.Await("the READ", isRead)
			c.Send(response)
		}
		more, sent := c.NextMatching(isRead, 8*ib.AckTimeout(c.Attr.Timeout))
		c.Check(!sent, "no more than 2 retransmissions", "another %v", more)
		c.ExpectCompletion(2, verbs.WCRetryExcErr)
		c.ExpectCompletion(3, verbs.WCWRFlushErr)
	}),
}, {
	ID: "rc/tmo/only-progress-restarts-the-timer", Cite: ibta("C9-139, C9-140", "rc/tmo/2"), Level: conformance.Should,
	Title:   "Further packets do not delay the retransmission of an unanswered request, unless they acknowledge it in part",
	Sends:   "four times in each timeout, while a SEND is unanswered: copies of responses to earlier requests, an ACK of a PSN that was not sent, or a request; or the device has more to send",
	Expects: "the SEND is retransmitted within eight timeouts",
	Defects: []string{"SendRestartsTimer", "StaleAckRestartsTimer", "GhostAckRestartsTimer", "RequestRestartsTimer"},
	Run: onEachConn(Setup{Receives: 64, Modify: withTimeoutAndRetries(timeout4ms, 7)}, timerDisturbances, func(c *Conn, d timerDisturbance) {
		c.request(0, c.ReadWR(1, 8), c.SendWR(2, 8))
		c.Send(ib.ReadResponseOnly(c.DevicePSN(0), 1, Data(8)), c.peerAck(1, 2))
		c.ExpectCompletions(verbs.WCSuccess, 1, 2)
		unanswered := c.request(2, c.SendWR(3, 8))[0]
		timeout, again := ib.AckTimeout(c.Attr.Timeout), false
		for i := 0; i < 32 && !again; i++ {
			d.play(c, i)
			_, again = c.NextMatching(func(a *Arrival) bool {
				return c.isForPeer(a) && a.Opcode() == ib.OpSendOnly && a.PSN() == unanswered.PSN()
			}, timeout/4)
		}
		c.Check(again, fmt.Sprintf("a retransmission within %v, eight timeouts", 8*timeout), "none")
		c.Must("a queue pair that can be destroyed", c.QP.Close())
	}),
}, {
	ID: "rc/tmo/every-request-ends-on-a-lossy-link", Cite: ibta("", "rc/tmo/14"),
	Title:   "On a lossy link every request completes",
	Sends:   "responses to 120 requests of several kinds; 1, 5 and 15 % of the packets are lost in both directions",
	Expects: "a completion for every request, in order, and correct data where they succeed; they do at 1 and at 5 %",
	Defects: []string{"NoTransportTimer", "RetryCountShared"}, Run: onEachConn(Setup{Modify: withTimeoutAndRetries(timeout4ms, 7)}, []int{1, 5, 15}, func(c *Conn, percent int) {
		peer := NewResponder(c.DevicePSN(0), c.Attr.PathMTU.Bytes(), PeerMemory.Addr)
		(&lossyLink{c, peer, percent, percent > 5, make(map[uint64]int)}).run()
	}),
}})

// timerDisturbance is a step that must not restart the timer of a SEND with the device's third PSN,
// which follows a READ and a SEND that are answered. play takes the number of steps before.
type timerDisturbance struct {
	name string
	play func(c *Conn, i int)
}

func (d timerDisturbance) String() string { return d.name }

var timerDisturbances = []timerDisturbance{
	{"more to send", func(c *Conn, i int) { c.PostSend(c.QP, c.WriteWR(uint64(10+i), 8)) }},
	{"copies of the last ACK", func(c *Conn, _ int) { c.Send(c.peerAck(1, 2)) }},
	{"copies of a READ response", func(c *Conn, _ int) { c.Send(ib.ReadResponseOnly(c.DevicePSN(0), 1, Data(8))) }},
	{"late NAKs", func(c *Conn, _ int) { c.Send(c.peerNak(1, ib.NakSequence, 1)) }},
	{"ACKs of a PSN that was not sent", func(c *Conn, _ int) { c.Send(c.peerAck(50, 2)) }},
	{"requests", func(c *Conn, i int) { c.Send(c.peerSend(i, 8)) }},
}

// expectRetransmittedRequest answers a request only when the device has retransmitted it,
// and fails the case unless it succeeds.
func expectRetransmittedRequest(c *Conn, wr verbs.SendWR, answer ib.Packet) {
	c.expectRetransmission(c.request(0, wr), 0)
	c.completeWith(answer, wr.WRID)
}

// exhaustRetries has the device send a SEND that is not answered, and fails the case
// unless it is retransmitted exactly retry_cnt times.
func exhaustRetries(c *Conn) {
	c.PostSend(c.QP, c.SendWR(1, 8))
	for range int(c.Attr.RetryCnt) + 1 {
		c.expectAll(c.wantSend(0, 8))
	}
	more, sent := c.NextPacket(8 * ib.AckTimeout(c.Attr.Timeout))
	c.Check(!sent, fmt.Sprintf("no more than %d retransmissions", c.Attr.RetryCnt), "another %v", more)
}

// setRetriesInSQD moves the queue pair, which has sent nothing, to SQD, sets its retry counts, and
// moves it back to RTS.
func (c *Conn) setRetriesInSQD(retries, rnrRetries uint8) {
	c.toSQD(false)
	c.Attr.RetryCnt, c.Attr.RNRRetry = retries, rnrRetries
	c.Must("other retry counts in SQD", c.QP.Modify(
		verbs.QPAttr{State: verbs.QPStateSQD, RetryCnt: retries, RNRRetry: rnrRetries},
		verbs.QPAttrState|verbs.QPAttrRetryCnt|verbs.QPAttrRNRRetry))
	c.ToState(c.QP, verbs.QPStateRTS)
}

// lossyLink connects to a correct responder over a link that drops packets in both directions.
type lossyLink struct {
	conn    *Conn
	peer    *Responder
	percent int // percentage of packets that are dropped
	// mayFail: the percentage is so high that the retries of a request may be exhausted.
	mayFail bool
	// reads has the offset of the buffer in LocalMem for each READ, by ID.
	reads map[uint64]int
}

// READs use lossySlots buffers in turn. At most half of lossyWindow outstanding requests are READs,
// therefore a buffer is checked before it is reused.
const (
	lossyReadLen = 1500
	lossySlots   = 5
	lossyWindow  = 8
)

// drawLoss reports, at random, whether the link drops the next packet.
func (l *lossyLink) drawLoss() bool { return l.conn.Rand.IntN(100) < l.percent }

// run has the device post 120 requests, answers the packets that the link does not lose, and fails
// the case unless the requests complete in order.
func (l *lossyLink) run() {
	const requests = 120
	progress := l.conn.Now()
	for done, posted := 0, 0; done < requests; {
		for ; posted < requests && posted-done < lossyWindow; posted++ {
			l.conn.PostSend(l.conn.QP, l.newRequest(posted))
		}
		// Serve several packets for each poll: polling may take so long that the device times out.
		for range 16 {
			if !l.serveNext() {
				break
			}
		}
		for _, wc := range l.conn.Completions() {
			// With mayFail, eight losses in a row may make a request fail, which flushes the later
			// ones. With a loss of 5 % the probability is 10^-8.
			l.conn.Check(wc.WRID == uint64(done), "completions in the order of posting", "%d at position %d", wc.WRID, done)
			l.conn.Check(wc.Status == verbs.WCSuccess || l.mayFail, fmt.Sprintf("success on a link that loses %d %%", l.percent), "%s", rig.Describe(&wc))
			if at, ok := l.reads[wc.WRID]; ok && wc.Status == verbs.WCSuccess {
				l.conn.ExpectBytes(l.conn.LocalMem, at, l.peer.Memory[:lossyReadLen])
				clear(l.conn.LocalMem.Buf[at:][:lossyReadLen])
			}
			done++
			progress = l.conn.Now()
		}
		l.conn.Check(l.conn.Now()-progress < l.conn.ResponseTimeout(), "every request to complete", "none in %v, %d of %d before", l.conn.ResponseTimeout(), done, requests)
	}
}

// serveNext waits briefly for a packet of the device, and answers it, unless the simulated loss
// drops the packet or the answer. It reports whether there was a packet.
func (l *lossyLink) serveNext() bool {
	p, ok := l.conn.NextPacket(shortWait)
	if !ok || l.drawLoss() {
		return ok
	}
	for _, a := range l.peer.Respond(p.Packet) {
		if !l.drawLoss() {
			l.conn.Send(a)
		}
	}
	return true
}

// newRequest returns the i-th request: SEND, WRITE, atomic (READ if atomics are not supported) and
// READ alternate. READs use lossySlots buffers in turn.
func (l *lossyLink) newRequest(i int) verbs.SendWR {
	id := uint64(i)
	switch i % 4 {
	case 0:
		return l.conn.SendWR(id, 16)
	case 1:
		return l.conn.WriteWR(id, 2500)
	case 2:
		if l.conn.Caps.Has(verbs.CapAtomics) {
			wr := l.conn.fetchAddWR(id)
			wr.SGL = l.conn.localSGL(SinkOffset-8, 8) // before the buffers of READs
			return wr
		}
	}
	l.reads[id] = SinkOffset + len(l.reads)%lossySlots*lossyReadLen
	wr := l.conn.ReadWR(id, lossyReadLen)
	wr.SGL = l.conn.localSGL(l.reads[id], lossyReadLen)
	return wr
}

// Responder is a correct RC responder. It executes requests in the order of their PSNs,
// sends one NAK for a gap, and answers duplicates. It ignores the data of SENDs and WRITEs.
type Responder struct {
	// Memory is the memory that READs return. Its first byte has address Base.
	Memory []byte
	Base   uint64

	mtu      int
	expected ib.PSN
	msn      uint32
	nakSent  bool // a NAK was sent for the current gap
	// lastAckable is the PSN of the newest executed request that is not a READ.
	lastAckable ib.PSN
	// atomics are the original values returned for atomics, by PSN.
	atomics map[ib.PSN]uint64
}

// NewResponder returns a responder with 4096 bytes of memory at base, which expects first
// as the PSN of the first request.
func NewResponder(first ib.PSN, mtu int, base uint64) *Responder {
	return &Responder{
		Memory: rig.Pattern(4096, 0xc3), Base: base,
		mtu: mtu, expected: first, lastAckable: first.Add(-1), atomics: make(map[ib.PSN]uint64),
	}
}

// Respond executes a request packet and returns the responses to it. Of the packets after a gap,
// only the first is answered, by a NAK; a duplicate is answered again.
func (r *Responder) Respond(p ib.Packet) []ib.Packet {
	ahead := p.PSN().Sub(r.expected)
	switch {
	case ahead > 0 && r.nakSent:
		return nil
	case ahead > 0:
		r.nakSent = true
		return []ib.Packet{ib.Nak(r.expected, ib.NakSequence, r.msn)}
	case ahead == 0:
		r.execute(p)
	}
	info, _ := p.Info()
	switch {
	case info.Kind == ib.KindReadRequest:
		off := int(*p.RETH.VA - r.Base)
		return ib.ReadResponses(p.PSN(), r.msn, r.Memory[off:][:*p.RETH.Len], r.mtu)
	case info.Kind == ib.KindAtomic:
		return []ib.Packet{ib.AtomicAck(p.PSN(), r.msn, r.atomics[p.PSN()])}
	case ahead < 0 || p.HasAckReq():
		return []ib.Packet{ib.Ack(r.lastAckable, r.msn)}
	}
	return nil
}

// execute updates PSN and MSN for a request with the expected PSN. It writes no memory: the
// original value that an atomic returns is the number of atomics before it.
func (r *Responder) execute(p ib.Packet) {
	info, _ := p.Info()
	r.nakSent = false
	if info.Position == ib.Last || info.Position == ib.Only {
		r.msn++
	}
	if info.Kind == ib.KindReadRequest {
		r.expected = r.expected.Add(ib.Packets(int(*p.RETH.Len), r.mtu))
		return
	}
	if info.Kind == ib.KindAtomic {
		r.atomics[p.PSN()] = uint64(len(r.atomics))
	}
	r.lastAckable, r.expected = p.PSN(), p.PSN().Add(1)
}
