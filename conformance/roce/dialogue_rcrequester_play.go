package roce

import (
	"bytes"
	"time"

	"github.com/fabrictest/fabrictest/conformance/model"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// playPost posts requests with one call. Requests beyond the limits of the dialogue are left out.
func (s *rcRequesterSession) playPost(step *requesterStep) {
	var wrs []verbs.SendWR
	for _, p := range step.posts {
		if r, ok := s.newRequest(p); ok {
			s.model.Post(r)
			wrs = append(wrs, r.SendWR)
			s.conn.Note("post %v %#x, %d bytes", r.Opcode, r.WRID, max(len(r.Data), r.Len))
		}
	}
	if len(wrs) == 0 {
		return
	}
	n := rig.Result(s.conn.QP.PostSend(wrs))(s.conn, "send requests that the device accepts")
	s.conn.Check(n == len(wrs), "all requests accepted", "%d of %d", n, len(wrs))
	for i := range wrs {
		clear(wrs[i].Inline) // the memory may be reused after the call
	}
}

// newRequest returns the request that p describes; false if it exceeds the limits of the dialogue.
func (s *rcRequesterSession) newRequest(p requesterPost) (*model.RCRequest, bool) {
	_, packets := s.model.Outstanding()
	if packets > requesterMaxPackets || len(s.model.Queue()) >= requesterMaxQueue {
		return nil, false
	}
	r := &model.RCRequest{SendWR: verbs.SendWR{Opcode: s.supported(p.op), Flags: p.flags &^ verbs.SendInline, XRC: verbs.XRC{SRQN: requesterSRQ}}}
	s.posted++
	r.WRID = s.posted<<40 | s.posted // the completion must have all 64 bits
	if s.unsignaled++; s.unsignaled > 4 {
		r.Flags |= verbs.SendSignaled
	}
	if r.Flags&verbs.SendSignaled != 0 {
		s.unsignaled = 0
	}
	r.Remote = verbs.Remote{Addr: PeerMemory.Addr + 8*s.posted, RKey: PeerMemory.RKey + verbs.RKey(s.posted)}
	switch r.Opcode {
	case verbs.OpBindMW, verbs.OpLocalInv:
		return r, s.addWindow(r, p)
	case verbs.OpRDMARead, verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd:
		return r, s.addSink(r, p)
	case verbs.OpFlush:
		r.Flush = verbs.Flush{Length: uint32(s.length(p)), Type: verbs.FlushGlobal, Level: verbs.FlushLevel(p.value % 2)}
		return r, true
	case verbs.OpAtomicWrite:
		p.mtus, p.extra = 0, 8
	}
	s.addSource(r, p)
	return r, true
}

// supported returns the opcode, or one in its place if the device does not support it.
func (s *rcRequesterSession) supported(op verbs.WROpcode) verbs.WROpcode {
	switch op {
	case verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd:
		if !s.conn.Caps.Has(verbs.CapAtomics) {
			return verbs.OpRDMARead
		}
	case verbs.OpSendInv:
		if !s.conn.Caps.Has(verbs.CapSendInv) {
			return verbs.OpSend
		}
	case verbs.OpFlush:
		if !s.conn.Caps.Has(verbs.CapFlush) {
			return verbs.OpRDMAWrite
		}
	case verbs.OpAtomicWrite:
		if !s.conn.Caps.Has(verbs.CapAtomicWrite) {
			return verbs.OpRDMAWrite
		}
	case verbs.OpBindMW, verbs.OpLocalInv:
		if len(s.windows) == 0 {
			return verbs.OpSend
		}
	}
	return op
}

// length returns the length of the request's payload.
func (s *rcRequesterSession) length(p requesterPost) int {
	return min(max(0, p.mtus*s.conn.Attr.PathMTU.Bytes()+p.extra), requesterMaxLen)
}

// addSource adds the payload of a SEND or WRITE to a request.
func (s *rcRequesterSession) addSource(r *model.RCRequest, p requesterPost) {
	n := s.length(p)
	r.Imm, r.InvalidateRKey = p.value, verbs.RKey(p.value*7)
	if p.flags&verbs.SendInline != 0 && s.inline {
		r.Data = rig.Pattern(min(n, requesterInline), byte(p.value))
		r.Inline, r.Flags = append([]byte{}, r.Data...), r.Flags|verbs.SendInline
		return
	}
	pieces := min(p.pieces, max(1, n))
	for i := range pieces {
		size := n / pieces
		if i == pieces-1 {
			size = n - len(r.Data)
		}
		if size > 0 {
			off := (int(p.value>>8) + 5003*i) % (requesterSources - size)
			r.SGL = append(r.SGL, s.conn.LocalMem.SGE(off, size))
			r.Data = append(r.Data, s.shadow[off:][:size]...)
		}
	}
	if p.bad && n > 0 {
		s.damageSource(r, p)
	}
}

// damageSource makes an SGE of the first packet invalid: by a wrong L_Key, or by a range that
// begins before or ends after the region.
func (s *rcRequesterSession) damageSource(r *model.RCRequest, p requesterPost) {
	sge, isShort := &r.SGL[0], len(r.Data) <= s.conn.Attr.PathMTU.Bytes()
	if isShort {
		sge = &r.SGL[int(p.value>>2)%len(r.SGL)]
	}
	switch {
	case p.value%3 == 0:
		sge.Addr = s.conn.LocalMem.Addr() - 1
	case p.value%3 == 1 && isShort:
		sge.Addr = s.conn.LocalMem.Addr() + requesterMem - uint64(sge.Length) + 1
	default:
		sge.LKey = verbs.LKey(unknownKey(verbs.RKey(sge.LKey)))
	}
	r.Fails = verbs.WCLocProtErr
}

// addSink adds the buffers of a READ or atomic to a request. It returns false if they would overlap
// buffers of requests that have not completed.
func (s *rcRequesterSession) addSink(r *model.RCRequest, p requesterPost) bool {
	const gap = 16 // unused bytes after each buffer
	r.Len = s.length(p)
	pieces := min(p.pieces, max(1, r.Len))
	if r.Opcode != verbs.OpRDMARead { // an atomic
		r.Len, pieces = 8, min(p.pieces, 2)
		r.Atomic = verbs.Atomic{CompareAdd: uint64(p.value)<<32 | uint64(^p.value), Swap: uint64(p.value) * 0x1_0001_0003}
	}
	need := r.Len + gap*pieces
	if s.sinkNext+need > requesterMem {
		s.sinkNext = requesterSources // after the last buffer, continue with the first
	}
	from := s.conn.LocalMem.Addr() + uint64(s.sinkNext)
	for _, sgl := range s.sinks {
		for _, sge := range sgl {
			if sge.Addr < from+uint64(need) && from < sge.Addr+uint64(sge.Length) {
				return false
			}
		}
	}
	for i, left := 0, r.Len; left > 0; i++ {
		size := left
		if i < pieces-1 {
			size = r.Len / pieces
		}
		r.SGL = append(r.SGL, s.conn.LocalMem.SGE(s.sinkNext, size))
		s.sinkNext += size + gap
		left -= size
	}
	s.sinks[r] = r.SGL
	return true
}

// addWindow makes r a bind of a window that is free, or a local invalidate of one that is bound. If
// p.bad is set it makes the invalid request: a bind of a bound window, or the invalidate of a free
// one. It returns true: r can be posted.
func (s *rcRequesterSession) addWindow(r *model.RCRequest, p requesterPost) bool {
	w := s.windows[int(p.value)%len(s.windows)]
	bind := !w.bound
	if p.bad {
		bind = !bind
	}
	w.bound = bind
	r.Window = w.state
	r.Opcode, r.InvalidateRKey = verbs.OpLocalInv, w.key
	if bind {
		w.key = verbs.NextRKey(w.key)
		r.Opcode = verbs.OpBindMW
		r.Bind = verbs.Bind{MW: w.mw, RKey: w.key, Info: bindRange(s.bindMem, 64, 256, verbs.AccessRemoteRead)}
	}
	return true
}

// msn returns the MSN of responses: the number of completed requests of this connection.
func (s *rcRequesterSession) msn() uint32 {
	return uint32(int(s.posted-s.earlier) - len(s.model.Queue()))
}

// result returns the data that the peer returns for a READ.
func result(r *model.RCRequest) []byte { return rig.Pattern(r.Len, byte(37*r.WRID+11)) }

// answers returns the remaining responses of a READ or atomic. If the device has requested the rest
// of a READ again, restart makes them begin with FIRST or ONLY, else they continue the old
// responses.
func (s *rcRequesterSession) answers(a model.RCAnswer, restart bool) []ib.Packet {
	mtu := s.conn.Attr.PathMTU.Bytes()
	switch {
	case a.Request.Opcode == verbs.OpAtomicCmpAndSwp || a.Request.Opcode == verbs.OpAtomicFetchAdd:
		return []ib.Packet{ib.AtomicAck(a.PSN, s.msn(), 0x0102_0304_0506_0708*a.Request.WRID)}
	case restart && a.Restarted:
		return ib.ReadResponses(a.PSN, s.msn(), result(a.Request)[a.Index*mtu:], mtu)
	}
	return ib.ReadResponses(a.PSN.Add(-a.Index), s.msn(), result(a.Request), mtu)[a.Index:]
}

// validForms are variants of valid responses, which the device must accept.
var validForms = []variant[func(ib.Packet) ib.Packet]{
	{"plain", func(p ib.Packet) ib.Packet { return p }},
	{"plain, restarting", func(p ib.Packet) ib.Packet { return p }},
	{"with MigReq 0", func(p ib.Packet) ib.Packet {
		p.BTH.MigReq = new(false)
		return p
	}},
	{"with reserved bits", func(p ib.Packet) ib.Packet { return p.WithReserved(0x3f, 0x7f) }},
	{"with the P_Key of a limited member", func(p ib.Packet) ib.Packet { return p.WithPKey(0x7fff) }},
	{"from another UDP port", func(p ib.Packet) ib.Packet { return p.WithSrcPort(0xd123) }},
	{"with a UDP checksum", ib.Packet.WithUDPChecksum},
	{"plain, continuing", func(p ib.Packet) ib.Packet { return p }},
}

// playRespond sends valid responses one to three times, without comparing in between.
func (s *rcRequesterSession) playRespond(step *requesterStep) {
	form := validForms[step.variant%len(validForms)].make
	for i := range 1 + step.code/8%3 {
		for _, p := range s.validResponses(step.n>>i, step.code, step.variant%2 == 1) {
			s.deliver(form(p))
		}
	}
}

// validResponses returns an ACK of some or all outstanding packets before the first unanswered READ
// or atomic, or some or all responses to that. choice and code select among them.
func (s *rcRequesterSession) validResponses(choice, code int, restart bool) []ib.Packet {
	una, n := s.model.Outstanding()
	a, ok := s.model.NextAnswer()
	if ok {
		n = a.PSN.Sub(una)
	}
	switch {
	case n > 0 && (!ok || choice%2 == 0):
		at := choice / 2 % n
		if code%2 == 0 { // half of the ACKs cover all
			at = n - 1
		}
		return []ib.Packet{ib.Ack(una.Add(at), s.msn())}
	case ok:
		all := s.answers(a, restart)
		if code%5 < 2 {
			all = all[:1+choice%len(all)]
		}
		return all
	}
	return nil
}

// stray makes a response with this PSN. code selects the code of a NAK or the timer of an RNR NAK.
type stray func(s *rcRequesterSession, psn ib.PSN, code int) ib.Packet

var strayResponses = []variant[stray]{
	{"ATOMIC_ACKNOWLEDGE", func(s *rcRequesterSession, psn ib.PSN, _ int) ib.Packet {
		return ib.AtomicAck(psn, s.msn(), 0xdead_beef_0bad_f00d)
	}},
	{"READ_RESPONSE_FIRST", func(s *rcRequesterSession, psn ib.PSN, _ int) ib.Packet {
		return ib.Response(ib.OpReadResponseFirst, psn, s.msn(), Data(s.conn.Attr.PathMTU.Bytes()))
	}},
	{"READ_RESPONSE_ONLY", func(s *rcRequesterSession, psn ib.PSN, _ int) ib.Packet {
		return ib.ReadResponseOnly(psn, s.msn(), Data(64))
	}},
	{"READ_RESPONSE_MIDDLE", func(s *rcRequesterSession, psn ib.PSN, _ int) ib.Packet {
		return ib.New(ib.OpReadResponseMiddle, psn, Data(s.conn.Attr.PathMTU.Bytes()))
	}},
	{"READ_RESPONSE_LAST", func(s *rcRequesterSession, psn ib.PSN, _ int) ib.Packet {
		return ib.Response(ib.OpReadResponseLast, psn, s.msn(), Data(8))
	}},
	{"ACK", func(s *rcRequesterSession, psn ib.PSN, _ int) ib.Packet { return ib.Ack(psn, s.msn()) }},
	{"ACK", func(s *rcRequesterSession, psn ib.PSN, _ int) ib.Packet { return ib.Ack(psn, s.msn()) }},
	{"sequence NAK", func(s *rcRequesterSession, psn ib.PSN, _ int) ib.Packet {
		return ib.Nak(psn, ib.NakSequence, s.msn())
	}},
	{"fatal NAK", func(s *rcRequesterSession, psn ib.PSN, code int) ib.Packet {
		return ib.Nak(psn, ib.NakCode(1+code%3), s.msn())
	}},
	{"RNR NAK", func(s *rcRequesterSession, psn ib.PSN, code int) ib.Packet {
		return ib.RNR(psn, uint8(code), s.msn())
	}},
}

// strayAnswers is the number of strayResponses, from the first on, that are responses to READs and
// atomics.
const strayAnswers = 5

// strayResponse returns a response of the step's variant with this PSN.
func (s *rcRequesterSession) strayResponse(step *requesterStep, psn ib.PSN) ib.Packet {
	return strayResponses[step.variant%len(strayResponses)].make(s, psn, step.code)
}

// playStale sends a response with a PSN that is acknowledged.
func (s *rcRequesterSession) playStale(step *requesterStep) {
	una, _ := s.model.Outstanding()
	n := step.n
	if n < 64 {
		n %= 6
	}
	s.deliver(s.strayResponse(step, una.Add(-1-n)))
}

// playUnsent sends a response with a PSN that the device has not sent.
func (s *rcRequesterSession) playUnsent(step *requesterStep) {
	n := step.n
	if n < 64 {
		n %= 6
	}
	s.deliver(s.strayResponse(step, s.model.NextPSN().Add(n)))
}

// playAckPast sends an ACK with the PSN of the first unanswered READ or atomic, or a later one.
func (s *rcRequesterSession) playAckPast(step *requesterStep) {
	if a, ok := s.model.NextAnswer(); ok {
		s.deliver(ib.Ack(a.PSN.Add(step.n%s.model.NextPSN().Sub(a.PSN)), s.msn()))
	}
}

// outstanding returns the PSN of the n-th outstanding packet, modulo their number; false if there
// is none.
func (s *rcRequesterSession) outstanding(n int) (ib.PSN, bool) {
	una, all := s.model.Outstanding()
	if all == 0 {
		return 0, false
	}
	return una.Add(n % all), true
}

// playNak sends a sequence NAK, and up to two copies if it causes a retransmission.
func (s *rcRequesterSession) playNak(step *requesterStep) {
	psn, ok := s.outstanding(step.n)
	if !ok {
		return
	}
	nak := ib.Nak(psn, ib.NakSequence, s.msn())
	s.deliver(nak)
	if _, missing := s.model.Missing(); missing { // the copies must cause no other retransmission
		for range step.variant % 3 {
			s.Send(nak)
		}
	}
}

// playRNR sends an RNR NAK, with a short timer in real time.
func (s *rcRequesterSession) playRNR(step *requesterStep) {
	psn, ok := s.outstanding(step.n)
	if !ok {
		return
	}
	code := step.code
	if !s.conn.Virtual {
		code = 1 + code%18 // at most 5 ms
	}
	s.deliver(ib.RNR(psn, uint8(code), s.msn()))
}

// playRefuse answers the oldest request by RNR NAKs with the shortest timer until the device gives
// up, nine at most. In some steps a timeout or, in strict mixes, a stale response is between them.
func (s *rcRequesterSession) playRefuse(step *requesterStep) {
	for range 9 {
		psn, ok := s.outstanding(0)
		if !ok || s.model.Failed() {
			return
		}
		s.deliver(ib.RNR(psn, 1, s.msn()))
		s.compare(nil)
		s.strayBetween(step)
		if step.n%3 == 0 && s.conn.Attr.Timeout > 0 && !s.model.Failed() {
			s.await()
		}
	}
}

// strayBetween sends a stale response between retries, in every second step of a strict mix.
func (s *rcRequesterSession) strayBetween(step *requesterStep) {
	if s.mix.strict && step.code%2 == 0 {
		s.playStale(step)
	}
}

// playNakAgain sends a sequence NAK for the oldest packet before and after a timeout.
func (s *rcRequesterSession) playNakAgain(*requesterStep) {
	for i := range 2 {
		psn, ok := s.outstanding(0)
		if !ok || s.model.Failed() || s.conn.Attr.Timeout == 0 || s.model.WaitsForRNRTimer() {
			return
		}
		s.deliver(ib.Nak(psn, ib.NakSequence, s.msn()))
		s.compare(nil)
		if i == 0 && !s.model.Failed() {
			s.await()
		}
	}
}

// playCredits repeats the last ACK with other credits.
func (s *rcRequesterSession) playCredits(*requesterStep) {
	una, _ := s.model.Outstanding()
	s.deliver(ib.Ack(una.Add(-1), s.msn()))
}

// playGap sends a later response to the oldest request, a READ, instead of the next one.
func (s *rcRequesterSession) playGap(step *requesterStep) {
	if a, ok := s.model.NextAnswer(); ok && a.Oldest && a.Total-a.Index > 1 {
		all := s.answers(a, false)
		s.deliver(all[1+step.n%(len(all)-1)])
	}
}

// playFatal sends a fatal NAK, half of the time with the oldest PSN. If the mix has nakInRead, some
// are sent after one more response of a READ, else none within the responses of a READ.
func (s *rcRequesterSession) playFatal(step *requesterStep) {
	psn, ok := s.outstanding(step.n / 2 * (step.n % 2))
	a, reads := s.model.NextAnswer()
	switch {
	case reads && a.Total-a.Index > 1 && s.mix.nakInRead && step.variant%2 == 0:
		s.deliver(s.answers(a, false)[0])
		psn = a.PSN.Add(1)
	case reads && a.Index > 0 && !s.mix.nakInRead:
		return
	}
	if ok {
		s.deliver(ib.Nak(psn, ib.NakCode(1+step.code%3), s.msn()))
	}
}

// playReserved acknowledges the oldest packet with a reserved syndrome.
func (s *rcRequesterSession) playReserved(step *requesterStep) {
	psn, ok := s.outstanding(0)
	if !ok {
		return
	}
	// 0x64 to 0x7f are NAKs with a code that is not defined, the others have a reserved type.
	syndromes := []uint8{0x40, 0x5f, 0x80, 0x9f, 0xe0, 0x64, 0x65, 0x70, 0x7f}
	s.deliver(ib.Ack(psn, s.msn()).WithSyndrome(syndromes[step.code%len(syndromes)]))
}

// badAnswer returns an invalid response in place of the valid one to a READ or atomic.
type badAnswer func(step *requesterStep, valid ib.Packet, mtu int) ib.Packet

var badAnswers = []variant[badAnswer]{
	{"of the wrong kind", func(_ *requesterStep, valid ib.Packet, _ int) ib.Packet {
		if valid.Opcode() == ib.OpAtomicAcknowledge {
			return ib.ReadResponseOnly(valid.PSN(), 0, Data(8))
		}
		return ib.AtomicAck(valid.PSN(), 0, 7)
	}},
	{"READ_RESPONSE_MIDDLE", func(_ *requesterStep, valid ib.Packet, mtu int) ib.Packet {
		return ib.New(ib.OpReadResponseMiddle, valid.PSN(), Data(mtu))
	}},
	{"READ_RESPONSE_LAST of 8 bytes", func(_ *requesterStep, valid ib.Packet, _ int) ib.Packet {
		return ib.Response(ib.OpReadResponseLast, valid.PSN(), 0, Data(8))
	}},
	{"READ_RESPONSE_LAST of a full packet", func(_ *requesterStep, valid ib.Packet, mtu int) ib.Packet {
		return ib.Response(ib.OpReadResponseLast, valid.PSN(), 0, Data(mtu))
	}},
	{"READ_RESPONSE_ONLY of 8 bytes", func(_ *requesterStep, valid ib.Packet, _ int) ib.Packet {
		return ib.ReadResponseOnly(valid.PSN(), 0, Data(8))
	}},
	{"READ_RESPONSE_FIRST", func(_ *requesterStep, valid ib.Packet, mtu int) ib.Packet {
		return ib.Response(ib.OpReadResponseFirst, valid.PSN(), 0, Data(mtu))
	}},
	{"with the syndrome of a NAK", func(step *requesterStep, valid ib.Packet, _ int) ib.Packet {
		if valid.AETH == nil {
			return valid
		}
		return valid.WithSyndrome(0x60 | uint8(step.code))
	}},
	{"with four bytes too many", func(_ *requesterStep, valid ib.Packet, _ int) ib.Packet {
		return valid.WithPayload(append(bytes.Clone(valid.Payload), 1, 2, 3, 4))
	}},
	{"with up to eight bytes too few", func(step *requesterStep, valid ib.Packet, _ int) ib.Packet {
		return valid.WithPayload(valid.Payload[:max(0, len(valid.Payload)-1-step.n%8)])
	}},
}

// playBadAnswer sends an invalid response to the oldest request: if that is a SEND or WRITE, any
// response to a READ or atomic; else one of badAnswers in place of one of its responses.
func (s *rcRequesterSession) playBadAnswer(step *requesterStep) {
	psn, ok := s.outstanding(0)
	if !ok {
		return
	}
	a, unanswered := s.model.NextAnswer()
	if unanswered && !a.Oldest && step.n%2 == 1 { // acknowledge the requests before it first
		s.deliver(ib.Ack(a.PSN.Add(-1), s.msn()))
	}
	if a, unanswered = s.model.NextAnswer(); !unanswered || !a.Oldest {
		s.deliver(strayResponses[step.variant%strayAnswers].make(s, psn, 0))
		return
	}
	all := s.answers(a, false)
	bad := len(all) - 1 // the last response, or any one
	if step.code%2 == 0 {
		bad = step.n / 2 % len(all)
	}
	s.deliver(all[:bad]...)
	s.deliver(badAnswers[step.variant%len(badAnswers)].make(step, all[bad], s.conn.Attr.PathMTU.Bytes()))
}

// damages make a packet invalid, so that the device has to drop it.
var damages = []variant[func(*rcRequesterSession, ib.Packet) ib.Packet]{
	{"wrong ICRC", func(_ *rcRequesterSession, p ib.Packet) ib.Packet { return p.BadICRC() }},
	{"TVer 1", func(_ *rcRequesterSession, p ib.Packet) ib.Packet { return p.WithTVer(1) }},
	{"TVer 8", func(_ *rcRequesterSession, p ib.Packet) ib.Packet { return p.WithTVer(8) }},
	{"another P_Key", func(_ *rcRequesterSession, p ib.Packet) ib.Packet { return p.WithPKey(0x9234) }},
	{"an opcode of UC", func(_ *rcRequesterSession, p ib.Packet) ib.Packet { return p.On(ib.UC) }},
	{"another source address", func(s *rcRequesterSession, p ib.Packet) ib.Packet {
		if len(s.conn.Peers) == 1 {
			return p.BadICRC()
		}
		return p.From(s.conn.Peers[1])
	}},
}

// playDamaged sends an ACK of all outstanding packets with one of the damages, which the device
// must drop.
func (s *rcRequesterSession) playDamaged(step *requesterStep) {
	_, n := s.model.Outstanding()
	if psn, ok := s.outstanding(n - 1); ok {
		s.Send(damages[step.variant%len(damages)].make(s, ib.Ack(psn, s.msn())))
	}
}

// playWait waits until the running timer causes a packet or an error. If none runs, the device
// must send nothing.
func (s *rcRequesterSession) playWait(*requesterStep) {
	_, n := s.model.Outstanding()
	switch {
	case !s.model.Failed() && n > 0 && (s.conn.Attr.Timeout > 0 || s.model.WaitsForRNRTimer()):
		s.await()
	case s.conn.Virtual:
		s.compare(s.conn.Drain(time.Second))
	}
}

// playGiveUp sends no response, or only stale ones, until the device gives up.
func (s *rcRequesterSession) playGiveUp(step *requesterStep) {
	for _, n := s.model.Outstanding(); n > 0 && s.conn.Attr.Timeout > 0 && !s.model.Failed(); {
		s.await()
		s.strayBetween(step)
	}
}

// playReset moves the queue pair to RESET, in half of the steps after an RNR NAK with a long timer,
// and connects it again. The requests that were posted before must have no completions.
func (s *rcRequesterSession) playReset(step *requesterStep) {
	if psn, ok := s.outstanding(0); ok && step.variant%2 == 0 {
		s.deliver(ib.RNR(psn, 20, s.msn()))
		s.compare(nil)
	}
	s.conn.ToState(s.conn.QP, verbs.QPStateReset)
	sent := s.reactions() // during a long verb call the queue pair may send before it is in RESET
	if s.conn.CallTime < time.Millisecond && len(sent) > 0 {
		s.conn.Fail("nothing is sent in RESET", "%v", sent[0])
	}
	s.freeWindows()
	s.conn.ToInit(s.conn.QP, rig.RemoteAccess(s.port.Rig)&^verbs.AccessLocalWrite, 0)
	s.conn.ToRTR(s.conn.QP, s.conn.Attr)
	s.conn.ToRTS(s.conn.QP, s.conn.Attr)
	s.start()
}

// playToErr moves the queue pair to ERR.
func (s *rcRequesterSession) playToErr(*requesterStep) {
	s.conn.ToState(s.conn.QP, verbs.QPStateErr)
	s.model.ToError()
}

// playDrain moves the queue pair to SQD, in half of the steps with a request for SQ_DRAINED.
func (s *rcRequesterSession) playDrain(step *requesterStep) {
	if s.model.WaitsForRNRTimer() {
		s.await() // the specification leaves open whether local requests begin during the RNR timer
	}
	if !s.model.Failed() && !s.draining {
		mask := verbs.QPAttrState
		if s.notify = step.variant%2 == 0; s.notify {
			mask |= verbs.QPAttrEnSQDAsyncNotify
		}
		s.conn.Must("a change to SQD", s.conn.QP.Modify(verbs.QPAttr{State: verbs.QPStateSQD, EnSQDAsyncNotify: s.notify}, mask))
		s.draining = true
		s.model.Draining(true)
	}
}

// playModify changes attributes of a drained queue pair. The model uses the new ones from then on.
func (s *rcRequesterSession) playModify(step *requesterStep) {
	if s.model.Failed() || !s.draining || !s.model.Idle() {
		return
	}
	a := &s.conn.Attr
	a.State, a.MaxRdAtomic, a.Timeout = verbs.QPStateSQD, []uint8{1, 2, 4}[step.n%3], []uint8{0, 12, 13}[step.code%3]
	a.RetryCnt, a.RNRRetry = []uint8{7, 2, 3}[step.n/3%3], []uint8{7, 1, 2}[step.code/3%3]
	a.AH.GRH.TrafficClass = []uint8{0, 0x68}[step.variant%2]
	s.conn.Must("other attributes in SQD", s.conn.QP.Modify(*a, verbs.QPAttrState|verbs.QPAttrMaxQPRdAtomic|
		verbs.QPAttrTimeout|verbs.QPAttrRetryCnt|verbs.QPAttrRNRRetry|verbs.QPAttrAV))
	s.attr.timeout, s.attr.rdAtomic, s.attr.retries, s.attr.rnrRetries = a.Timeout, a.MaxRdAtomic, a.RetryCnt, a.RNRRetry
	s.model.MaxRdAtomic, s.model.RetryCnt, s.model.RNRRetry = int(a.MaxRdAtomic), int(a.RetryCnt), int(a.RNRRetry)
	s.model.Timeout = s.shortestTimeout()
}

// playResume moves the queue pair from SQD to RTS. The device must refuse that while requests are
// outstanding.
func (s *rcRequesterSession) playResume(*requesterStep) {
	switch {
	case s.model.Failed() || !s.draining:
	case s.model.Idle():
		s.conn.ToState(s.conn.QP, verbs.QPStateRTS)
		s.draining = false
		s.model.Draining(false)
	default:
		err := s.conn.QP.Modify(verbs.QPAttr{State: verbs.QPStateRTS}, verbs.QPAttrState)
		s.conn.MustFail("a change to RTS while requests are outstanding", err, nil)
	}
}
