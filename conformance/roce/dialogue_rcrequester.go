package roce

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/model"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// rcRequesterSession compares the requester of an RC queue pair with its model. The first step
// has the attributes of the connection.
type rcRequesterSession struct {
	conn       *Conn
	port       *Port
	mix        *rcRequesterMix
	model      *model.RCRequester
	attr       requesterAttr
	srcPort    *uint16 // UDP source port of the device's packets; nil before the first
	draining   bool    // the queue pair is in SQD
	notify     bool    // SQ_DRAINED is due when the send queue is drained
	inline     bool    // the device supports inline data
	posted     uint64  // number of posted requests
	earlier    uint64  // number of requests that were posted on earlier connections of the queue pair
	unsignaled int     // number of requests since the last signaled one
	windows    []*requesterWindow
	bindMem    *rig.Memory // to which windows are bound
	requesterBuffers
	requesterCredits
}

// requesterBuffers are the buffers of READs and atomics in LocalMem.
type requesterBuffers struct {
	shadow   []byte                           // the expected content of LocalMem
	sinks    map[*model.RCRequest][]verbs.SGE // the buffers of requests that have not completed
	sinkNext int                              // offset of the next buffer
}

// requesterCredits are the credits that the peer sends.
type requesterCredits struct {
	receives int // number of messages that the peer's credits permit since the connection was made
	add      int // the next response has at least this many credits
	announce int // number of responses with credits since the last one without, which ends the limit
}

// requesterWindow is a type 2 window that requests bind and invalidate.
type requesterWindow struct {
	mw    verbs.MW
	key   verbs.RKey // the R_Key of the last posted bind
	bound bool       // the last posted request for the window is a bind
	state *model.RCWindow
}

// rcRequesterMix is the mix of steps in the dialogues of a case.
type rcRequesterMix struct {
	// Values of attributes, and timer codes of RNR NAKs, from which one is drawn. If empty, the
	// timeout is 0, retries and rnrRetries are 7, and the timer code is random.
	timeouts, retries, rnrRetries, rnrTimers []uint8
	ops                                      []verbs.WROpcode // allSendOps if nil
	// One of `every` steps is of an abnormal kind; the others are posts and valid responses.
	abnormal []*requesterStepKind
	every    int
	// invalidPosts: some requests fail locally.
	invalidPosts bool
	// nakInRead: there are fatal NAKs after some responses of a READ.
	nakInRead bool
	// strict: the dialogues test rules that some devices are known to violate.
	strict bool
	// credits: responses have credits, for at most four messages.
	credits bool
	// xrc: the queue pair is an XRC initiator, and all requests name the SRQ requesterSRQ.
	xrc bool
}

const requesterSRQ = 0x5a1b2c

// Layout of LocalMem: sources of SENDs and WRITEs, then the buffers of READs and atomics.
const (
	requesterSources = 8 << 10  // length of the sources
	requesterMem     = 24 << 10 // length of LocalMem
	requesterMaxLen  = 5 << 10  // of a request
	requesterInline  = 64       // the largest inline payload
	// Limits on requests and packets in flight, below the windows of devices.
	requesterMaxPackets, requesterMaxQueue = 48, 16
	// requesterTimeTolerance is how much earlier than the timeout a retransmission may arrive, in
	// virtual time.
	requesterTimeTolerance = 20 * time.Microsecond
)

// onRequester returns the body of a case with dialogues of this mix.
func onRequester(dialogues int, mix rcRequesterMix) func(*conformance.Bench) error {
	return func(b *conformance.Bench) error {
		var port *Port // shared by all dialogues
		return rig.Dialogue[requesterStep]{Dialogues: dialogues, Steps: 32, Open: func(r *rig.Rig) rig.DialogueSession[requesterStep] {
			if port == nil {
				port = newPort(r)
			}
			port.Sync()
			port.skipped = nil
			port.Completions() // of an earlier dialogue
			return &rcRequesterSession{port: port, mix: &mix}
		}}.Body()(b)
	}
}

// connect makes a connection with these attributes, and its model.
func (s *rcRequesterSession) connect(a requesterAttr) {
	s.attr = a
	s.inline = s.port.QueryDevice().MaxInline >= requesterInline
	caps := verbs.QPCaps{MaxSendWR: 2 * requesterMaxQueue, MaxRecvWR: 4, MaxSendSGE: 3, MaxRecvSGE: 1}
	if s.inline {
		caps.MaxInline = requesterInline
	}
	kind := verbs.QPTypeRC
	if s.mix.xrc {
		kind = verbs.QPTypeXRCSend
	}
	s.conn = s.port.connect(Setup{
		qpType: kind, memLen: requesterMem, caps: caps, signalAll: a.signalAll, access: rig.RemoteAccess(s.port.Rig),
		Modify: func(q *verbs.QPAttr) {
			q.PathMTU, q.SQPSN, q.MaxRdAtomic = a.mtu, uint32(a.psn), a.rdAtomic
			q.Timeout, q.RetryCnt, q.RNRRetry = a.timeout, a.retries, a.rnrRetries
		},
	})
	s.start()
}

// start makes the model of a new connection, and two windows if the device has them.
func (s *rcRequesterSession) start() {
	a := &s.attr
	s.model = model.NewRCRequester(model.RCRequesterAttr{
		MTU: a.mtu.Bytes(), FirstPSN: a.psn, MaxRdAtomic: int(a.rdAtomic),
		RetryCnt: int(a.retries), RNRRetry: int(a.rnrRetries), Timeout: s.shortestTimeout(), SignalAll: a.signalAll,
		HeedsCredits: s.conn.Caps.Has(verbs.CapCredits), Should: s.mix.strict, AnyCompare: !s.mix.strict,
	})

	s.draining, s.notify, s.requesterCredits = false, false, requesterCredits{}
	s.earlier = s.posted
	s.shadow = bytes.Clone(s.conn.LocalMem.Buf)
	s.sinkNext, s.sinks = requesterSources, make(map[*model.RCRequest][]verbs.SGE)
	if s.conn.Caps.Has(verbs.CapMWType2 | verbs.CapLocalInv) {
		if s.bindMem == nil {
			s.bindMem = s.conn.bindableMemory()
		}
		for range 2 {
			mw := rig.Result(s.conn.PD.AllocMW(verbs.MWType2))(s.conn, "a window")
			s.windows = append(s.windows, &requesterWindow{mw: mw, key: mw.RKey(), state: new(model.RCWindow)})
		}
	}
	if s.mix.credits {
		s.learnCredits()
	}
}

// shortestTimeout returns the shortest time after which the transport timer may expire: the ACK
// timeout less a tolerance.
func (s *rcRequesterSession) shortestTimeout() time.Duration {
	timeout := ib.AckTimeout(s.conn.Attr.Timeout)
	if timeout > 0 {
		timeout -= byClock(s.port, requesterTimeTolerance, timeout/4)
	}
	return timeout
}

// Play performs a step and compares the reactions of device and model. If the first step does not
// connect, because that step was removed, Play connects with default attributes before it.
func (s *rcRequesterSession) Play(step requesterStep) {
	if s.conn == nil {
		if step.kind == stepConnect {
			s.connect(step.attr)
			return
		}
		s.connect(defaultRequesterAttr)
	}
	step.kind.play(s, &step)
	s.compare(nil)
}

// Close destroys the objects of the dialogue. The case fails if the device sends anything or
// completes a request after that, or has written to memory that no response may change.
func (s *rcRequesterSession) Close() {
	if s.conn == nil {
		return
	}
	if slices.ContainsFunc(s.windows, func(w *requesterWindow) bool { return w.bound }) {
		// Linux's rxe takes most of a minute to destroy a queue pair with a bound window, which has
		// a case of its own.
		s.conn.ToState(s.conn.QP, verbs.QPStateErr)
		s.conn.ToState(s.conn.QP, verbs.QPStateReset)
		s.conn.Completions() // of flushed requests
		s.freeWindows()
	}
	s.conn.Must("a queue pair that can be destroyed", s.conn.QP.Close())
	s.conn.Drain(sentSoFar) // discards packets of a timer that expired before
	for _, p := range s.conn.Drain(silencePeriod) {
		s.conn.Fail("nothing is sent for a destroyed queue pair", "%v", p)
	}
	s.conn.ExpectNoCompletion()
	s.conn.expectNoMoreEvents()
	s.conn.ExpectUntouched(s.conn.TargetMem)
	s.conn.ExpectUnchangedOutside(s.conn.LocalMem, 0, requesterMem) // the guard bytes
	s.freeWindows()
	if s.bindMem != nil {
		s.conn.Must("a region that can be deregistered", s.bindMem.Close())
	}
	s.conn.Must("a region that can be deregistered", s.conn.TargetMem.Close())
	s.conn.Must("a region that can be deregistered", s.conn.LocalMem.Close())
}

// freeWindows closes the memory windows of the session.
func (s *rcRequesterSession) freeWindows() {
	for _, w := range s.windows {
		s.conn.Must("a window that can be freed", w.mw.Close())
	}
	s.windows = nil
}

// deliver sends responses to the device and passes them to the model. It leaves out a response
// whose effect the specification leaves open, after it has waited for a running RNR timer.
func (s *rcRequesterSession) deliver(responses ...ib.Packet) {
	for _, p := range responses {
		p = s.withCredits(p)
		if _, n := s.model.Outstanding(); n > 0 && s.model.WaitsForRNRTimer() && !s.model.Defined(p) {
			s.await()
		}
		if !s.model.Defined(p) {
			s.conn.Note("not sent, since its effect is not defined: %v", p)
			continue
		}
		s.model.Receive(p, s.conn.Now())
		s.Send(p)
		if s.mix.credits && s.announce == 0 {
			s.compare(nil) // before the next response limits the credits again
		}
	}
}

// Send sends a response with the opcode of the service.
func (s *rcRequesterSession) Send(p ib.Packet) {
	if s.mix.xrc {
		p = p.On(ib.XRC)
	}
	s.conn.Send(p)
}

// learnCredits has the device send a SEND, whose ACK has credits.
func (s *rcRequesterSession) learnCredits() {
	s.playPost(&requesterStep{posts: []requesterPost{{op: verbs.OpSend, pieces: 1, extra: 8, flags: verbs.SendSignaled}}})
	s.compare(nil)
	s.playRespond(&requesterStep{})
	s.compare(nil)
}

// mayHaveCredits reports whether a response is an ACK of an outstanding packet, a duplicate of the
// last ACK, or the next response to a READ or atomic.
func (s *rcRequesterSession) mayHaveCredits(p ib.Packet) bool {
	if p.AETH == nil || p.Syndrome() != ib.NoCreditCount {
		return false
	}
	if p.Opcode() != ib.OpAcknowledge {
		next, ok := s.model.NextAnswer()
		return ok && next.PSN == p.PSN()
	}
	una, n := s.model.Outstanding()
	at := p.PSN().Sub(una)
	return at >= -1 && at < n // -1 is the PSN of the last ACK
}

// withCredits adds a credit count to most responses, if the mix has credits. The peer never takes
// back credits; a response without a count ends the limit until the next count.
func (s *rcRequesterSession) withCredits(p ib.Packet) ib.Packet {
	if !s.mix.credits || !s.mayHaveCredits(p) {
		return p
	}
	msn := s.model.MSN(p.PSN())
	s.receives = max(s.receives, msn+s.add)
	if s.announce == 0 { // the device had no limit: permit all requests that it has sent
		s.receives = max(s.receives, s.model.LastBegun())
	}
	s.add = (s.add + 3) % 5
	if s.announce++; s.announce == 6 || s.receives-msn > 4 {
		s.announce = 0
		return p
	}
	return p.WithMSN(uint32(msn)).WithCredits(uint8(s.receives - msn)) // codes 0 to 4 mean 0 to 4 credits
}

// compare fails the case unless the packets of the device, its completions, memory and state are
// those of the model. packets were received before; compare receives those that follow.
func (s *rcRequesterSession) compare(packets []Arrival) {
	packets = append(packets, s.reactions()...)
	for _, p := range packets {
		s.checkSent(p)
	}
	s.checkCompletions()
	if want, missing := s.model.Missing(); missing {
		s.conn.Fail(want.String(), "nothing is sent")
	}
	s.conn.Check(!s.model.LacksAckReq(), "AckReq in the last packet before the device waits", "none")
	s.model.EndOfReactions()
	s.checkDrained()
	s.checkState()
	s.checkMemory()
}

// reactions returns the packets that the device sends in reaction to a step. In virtual time it
// only waits shortWait for each; in real time it also waits for an exchange on another connection.
func (s *rcRequesterSession) reactions() (all []Arrival) {
	if !s.conn.Virtual {
		return s.conn.Drain(shortWait)
	}
	for p, ok := s.conn.NextPacket(shortWait); ok; p, ok = s.conn.NextPacket(shortWait) {
		all = append(all, p)
	}
	return all
}

// checkSent fails the case unless the model permits a packet of the device, the packet has the
// traffic class of the connection, and its UDP source port is that of the packets before.
func (s *rcRequesterSession) checkSent(p Arrival) {
	permitted := s.model.Permitted(p.At)
	if len(permitted) == 0 {
		s.conn.Fail("nothing is sent", "%v", p)
	}
	i := max(0, slices.IndexFunc(permitted, func(send model.RCSend) bool { return send.Packet.PSN() == p.PSN() }))
	want := s.conn.fromDevice(permitted[i].Packet)
	if s.mix.xrc {
		want = want.OnXRC(requesterSRQ)
	}
	if s.srcPort != nil {
		want.UDP.SrcPort = s.srcPort
	}
	s.conn.checkPacket(want, p)
	tclass := s.conn.Attr.AH.GRH.TrafficClass
	s.conn.Check(*p.IP.TClass>>2 == tclass>>2, fmt.Sprintf("traffic class %#02x but for ECN", tclass), "%v with %#02x", p, *p.IP.TClass)
	s.srcPort = p.UDP.SrcPort
	s.model.Sent(permitted[i], p.Packet, p.At)
}

// checkCompletions fails the case unless the completions are those of the model.
func (s *rcRequesterSession) checkCompletions() {
	got, want := s.conn.Completions(), s.model.TakeCompletions()
	for deadline := s.conn.Now() + s.completionDelay(); len(got) < len(want) && s.conn.Now() < deadline; {
		if wc, ok := s.conn.PollCompletion(s.completionDelay()); ok {
			got = append(got, wc)
		}
	}
	if n := len(want); len(got) > n && s.model.MayFail(got[n].Status, s.conn.Now()) {
		s.model.Fail(got[n].Status)
		want = append(want, s.model.TakeCompletions()...)
	}
	for i, w := range want {
		s.conn.Check(i < len(got), describeWanted(w), "no completion")
		s.checkCompletion(w, &got[i])
	}
	if len(got) > len(want) {
		s.conn.Fail("no completion", "%s", rig.Describe(&got[len(want)]))
	}
}

// completionDelay returns how long after the packets a completion may be found.
func (s *rcRequesterSession) completionDelay() time.Duration {
	return byClock(s.port, shortWait, reorderLimit)
}

// describeWanted describes a completion that the model expects.
func describeWanted(w model.RCSendCompletion) string {
	if w.AnyError {
		return fmt.Sprintf("completion of %#x with an error", w.Request.WRID)
	}
	return fmt.Sprintf("completion of %#x: %v", w.Request.WRID, w.Status)
}

// checkCompletion fails the case unless a completion has the ID, status, QPN, opcode and length
// that the model expects.
func (s *rcRequesterSession) checkCompletion(w model.RCSendCompletion, got *verbs.WC) {
	r := w.Request
	statusOK := got.Status == w.Status || w.AnyError && got.Status != verbs.WCSuccess
	s.conn.Check(got.WRID == r.WRID && statusOK && got.QPN == s.conn.QP.QPN(), describeWanted(w),
		"%s of QP %#x", rig.Describe(got), got.QPN)
	if w.Status == verbs.WCSuccess {
		s.conn.Check(got.Opcode == r.WCOpcode(), fmt.Sprintf("opcode %v", r.WCOpcode()), "%v", got.Opcode)
		if r.Opcode == verbs.OpRDMARead {
			s.conn.Check(int(got.ByteLen) == r.Len, fmt.Sprintf("a READ of %d bytes", r.Len), "%d", got.ByteLen)
		}
	}
}

// checkDrained fails the case unless SQ_DRAINED, if it was asked for, is raised when no packet is
// outstanding, and not before.
func (s *rcRequesterSession) checkDrained() {
	if !s.notify {
		return
	}
	if s.model.Idle() {
		s.conn.expectQPEvent(verbs.EventSQDrained)
		s.notify = false
	}
	for _, e := range s.conn.pendingEvents() {
		s.conn.Check(s.conn.isSyncEvent(e), "no event", "%v", e.Type)
	}
}

// checkState fails the case unless the state of the queue pair, and the next PSN, are those of
// the model.
func (s *rcRequesterSession) checkState() {
	want := verbs.QPStateRTS
	switch {
	case s.model.Failed():
		want = verbs.QPStateErr
	case s.draining:
		want = verbs.QPStateSQD
	}
	a := s.conn.QueryQP(s.conn.QP)
	s.conn.Check(a.State == want, fmt.Sprintf("a queue pair in %v", want), "%v", a.State)
	if want == verbs.QPStateSQD {
		s.conn.Check(a.SQDraining == !s.model.Idle(), fmt.Sprintf("sq_draining %v", !s.model.Idle()), "%v", a.SQDraining)
	}
	next := s.model.NextPSN()
	if !s.model.Failed() && !s.model.WaitsForRNRTimer() && ib.PSN(a.SQPSN) != next {
		// A device that retransmits may return an earlier PSN until it is done, or gives up.
		s.conn.awaitCondition(fmt.Sprintf("next PSN %d in the attributes, after %d", next, a.SQPSN), func() bool {
			now := s.conn.QueryQP(s.conn.QP)
			return ib.PSN(now.SQPSN) == next || now.State == verbs.QPStateErr && s.model.Timeout > 0
		})
	}
}

// checkMemory fails the case unless LocalMem has the results of completed READs and atomics, and is
// unchanged elsewhere. The device may have written to buffers of requests that it has not
// completed.
func (s *rcRequesterSession) checkMemory() {
	for r, sgl := range s.sinks {
		done := !slices.Contains(s.model.Queue(), r)
		if done {
			delete(s.sinks, r)
		}
		switch complete := len(r.Result) == r.Len; {
		case done && complete:
			s.place(sgl, r.Result)
		case r.Touched:
			for _, sge := range sgl {
				off := int(sge.Addr - s.conn.LocalMem.Addr())
				copy(s.shadow[off:][:sge.Length], s.conn.LocalMem.Buf[off:])
			}
		}
	}
	if bytes.Equal(s.shadow, s.conn.LocalMem.Buf) {
		return
	}
	s.conn.ExpectBytes(s.conn.LocalMem, 0, s.shadow)
}

// place writes the result of a READ or atomic to its buffers in the shadow memory.
func (s *rcRequesterSession) place(sgl []verbs.SGE, result []byte) {
	for _, sge := range sgl {
		n := copy(s.shadow[sge.Addr-s.conn.LocalMem.Addr():][:sge.Length], result)
		result = result[n:]
	}
}

// await waits for the packet that a running timer causes. The case fails if no packet arrives in
// time, except after the last retry, when the device must complete the request with an error.
func (s *rcRequesterSession) await() {
	limit := s.conn.ResponseTimeout()
	// IBTA limits the ACK timeout to four times its nominal value.
	if t := ib.AckTimeout(s.conn.Attr.Timeout); t > 0 && !s.model.WaitsForRNRTimer() && (s.conn.Virtual || s.model.MustGiveUp()) {
		limit = 4 * t
	}
	if p, ok := s.conn.NextPacket(limit); ok {
		s.compare([]Arrival{p})
		return
	}
	s.checkCompletions()
	s.conn.Check(s.model.Failed(), fmt.Sprintf("a retransmission within %v, or the end of the retries", limit), "nothing")
}
