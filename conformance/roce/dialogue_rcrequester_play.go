package roce

import (
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
			s.Note("post %v %#x, %d bytes", r.Opcode, r.WRID, max(len(r.Data), r.Len))
		}
	}
	if len(wrs) == 0 {
		return
	}
	n := rig.Result(s.QP.PostSend(wrs))(s, "send requests that the device accepts")
	s.Check(n == len(wrs), "all requests accepted", "%d of %d", n, len(wrs))
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
	r := &model.RCRequest{SendWR: verbs.SendWR{Opcode: s.supported(p.op), Flags: p.flags &^ verbs.SendInline}}
	s.posted++
	r.WRID = s.posted<<40 | s.posted // the upper half must come back too
	if s.unsignaled++; s.unsignaled > 4 || s.signalAll {
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
	}
	s.addSource(r, p)
	return r, true
}

// supported returns the opcode, or another one that the device supports.
func (s *rcRequesterSession) supported(op verbs.WROpcode) verbs.WROpcode {
	switch op {
	case verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd:
		if !s.Caps.Has(verbs.CapAtomics) {
			return verbs.OpRDMARead
		}
	case verbs.OpSendInv:
		if !s.Caps.Has(verbs.CapSendInv) {
			return verbs.OpSend
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
	return max(0, p.mtus*s.Attr.PathMTU.Bytes()+p.extra)
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
			r.SGL = append(r.SGL, s.LocalMem.SGE(off, size))
			r.Data = append(r.Data, s.shadow[off:][:size]...)
		}
	}
	if p.bad && n > 0 {
		r.SGL[0].LKey = verbs.LKey(unknownKey(verbs.RKey(r.SGL[0].LKey)))
		r.Fails = verbs.WCLocProtErr
	}
}

// addSink adds the buffers of a READ or atomic to a request; false if there is no free memory.
func (s *rcRequesterSession) addSink(r *model.RCRequest, p requesterPost) bool {
	const gap = 16 // unused bytes after each buffer
	r.Len = s.length(p)
	if r.Opcode != verbs.OpRDMARead {
		r.Len = 8
		r.Atomic = verbs.Atomic{CompareAdd: uint64(p.value)<<32 | uint64(^p.value), Swap: uint64(p.value) * 0x1_0001_0003}
	}
	pieces := min(p.pieces, max(1, r.Len))
	if r.Opcode != verbs.OpRDMARead {
		pieces = min(pieces, 2)
	}
	need := r.Len + gap*pieces
	if s.sinkNext+need > requesterMem {
		s.sinkNext = requesterSources
	}
	from := s.LocalMem.Addr() + uint64(s.sinkNext)
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
		r.SGL = append(r.SGL, s.LocalMem.SGE(s.sinkNext, size))
		s.sinkNext += size + gap
		left -= size
	}
	s.sinks[r] = r.SGL
	return true
}

// addWindow makes a request a bind or a local invalidate of a window, whichever is valid after the
// requests before it, or the other one if p is to be invalid.
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

// msn returns the MSN of responses.
func (s *rcRequesterSession) msn() uint32 { return uint32(int(s.posted) - len(s.model.Queue())) }

// result returns the data that the peer returns for a READ.
func result(r *model.RCRequest) []byte { return rig.Pattern(r.Len, byte(37*r.WRID+11)) }

// answers returns the remaining responses of a READ or atomic. restart selects those of a new
// message, which are valid if the READ was requested again from there.
func (s *rcRequesterSession) answers(a model.RCAnswer, restart bool) []ib.Packet {
	mtu := s.Attr.PathMTU.Bytes()
	switch {
	case a.Request.Opcode != verbs.OpRDMARead:
		return []ib.Packet{ib.AtomicAck(a.PSN, s.msn(), 0x0102_0304_0506_0708*a.Request.WRID)}
	case restart && a.Restarted:
		return ib.ReadResponses(a.PSN, s.msn(), result(a.Request)[a.Index*mtu:], mtu)
	}
	return ib.ReadResponses(a.PSN.Add(-a.Index), s.msn(), result(a.Request), mtu)[a.Index:]
}

// playRespond acknowledges some of the outstanding packets, or sends some or all responses of
// the first unanswered READ or atomic.
func (s *rcRequesterSession) playRespond(step *requesterStep) {
	una, n := s.model.Outstanding()
	a, ok := s.model.NextAnswer()
	if ok {
		n = a.PSN.Sub(una)
	}
	switch {
	case n > 0 && (!ok || step.n%2 == 0):
		at := step.n / 2 % n
		if step.code%2 == 0 { // half of the ACKs cover all
			at = n - 1
		}
		s.deliver(ib.Ack(una.Add(at), s.msn()))
	case ok:
		all := s.answers(a, step.variant%2 == 0)
		if step.code%4 == 0 {
			all = all[:1+step.n%len(all)]
		}
		s.deliver(all...)
	}
}

// strayResponse returns a response of any kind with this PSN.
func (s *rcRequesterSession) strayResponse(step *requesterStep, psn ib.PSN) ib.Packet {
	msn := s.msn()
	switch junk := Data(64); step.variant % 8 {
	case 0, 1:
		return ib.Ack(psn, msn)
	case 2:
		return ib.Nak(psn, ib.NakSequence, msn)
	case 3:
		return ib.Nak(psn, ib.NakCode(1+step.code%3), msn)
	case 4:
		return ib.RNR(psn, uint8(step.code), msn)
	case 5:
		return ib.AtomicAck(psn, msn, 0xdead_beef_0bad_f00d)
	case 6:
		return ib.Response(ib.OpReadResponseFirst, psn, msn, rig.Data(s.Attr.PathMTU.Bytes()))
	default:
		return ib.ReadResponseOnly(psn, msn, junk)
	}
}

func (s *rcRequesterSession) playStale(step *requesterStep) {
	una, _ := s.model.Outstanding()
	n := step.n
	if n < 64 {
		n %= 6
	}
	s.deliver(s.strayResponse(step, una.Add(-1-n)))
}

func (s *rcRequesterSession) playGhost(step *requesterStep) {
	n := step.n
	if n < 64 {
		n %= 6
	}
	s.deliver(s.strayResponse(step, s.model.NextPSN().Add(n)))
}

func (s *rcRequesterSession) playAckPast(step *requesterStep) {
	if a, ok := s.model.NextAnswer(); ok {
		s.deliver(ib.Ack(a.PSN.Add(step.n%s.model.NextPSN().Sub(a.PSN)), s.msn()))
	}
}

// outstanding returns the PSN of the n-th outstanding packet; false if there is none.
func (s *rcRequesterSession) outstanding(n int) (ib.PSN, bool) {
	una, all := s.model.Outstanding()
	if all == 0 {
		return 0, false
	}
	return una.Add(n % all), true
}

func (s *rcRequesterSession) playNak(step *requesterStep) {
	psn, ok := s.outstanding(step.n)
	if !ok {
		return
	}
	nak := ib.Nak(psn, ib.NakSequence, s.msn())
	s.deliver(nak)
	if _, missing := s.model.Missing(); missing { // the NAK causes a retransmission; its copies no more
		for range step.variant % 3 {
			s.Send(nak)
		}
	}
}

func (s *rcRequesterSession) playRNR(step *requesterStep) {
	psn, ok := s.outstanding(step.n)
	if !ok {
		return
	}
	code := step.code
	if !s.Virtual {
		code = 1 + code%18 // at most 5 ms
	}
	s.deliver(ib.RNR(psn, uint8(code), s.msn()))
}

func (s *rcRequesterSession) playGap(step *requesterStep) {
	if a, ok := s.model.NextAnswer(); ok && a.Oldest && a.Total-a.Index > 1 {
		all := s.answers(a, false)
		s.deliver(all[1+step.n%(len(all)-1)])
	}
}

func (s *rcRequesterSession) playFatal(step *requesterStep) {
	if psn, ok := s.outstanding(step.n); ok {
		s.deliver(ib.Nak(psn, ib.NakCode(1+step.code%3), s.msn()))
	}
}

func (s *rcRequesterSession) playReserved(step *requesterStep) {
	psn, ok := s.outstanding(0)
	if !ok {
		return
	}
	syndromes := []uint8{0x40, 0x5f, 0x80, 0x9f, 0xe0, 0x64, 0x65, 0x70, 0x7f}
	s.deliver(ib.Ack(psn, s.msn()).WithSyndrome(syndromes[step.code%len(syndromes)]))
}

// playBadAnswer sends an invalid response to the oldest request.
func (s *rcRequesterSession) playBadAnswer(step *requesterStep) {
	psn, ok := s.outstanding(0)
	if !ok {
		return
	}
	a, unanswered := s.model.NextAnswer()
	mtu := s.Attr.PathMTU.Bytes()
	if !unanswered || !a.Oldest { // a SEND or WRITE
		s.deliver(s.strayResponse(&requesterStep{variant: 5 + step.variant%3}, psn))
		return
	}
	valid := s.answers(a, false)[0]
	switch step.variant % 8 {
	case 0:
		if a.Request.Opcode == verbs.OpRDMARead {
			s.deliver(ib.AtomicAck(psn, s.msn(), 7))
		} else {
			s.deliver(ib.ReadResponseOnly(psn, s.msn(), Data(8)))
		}
	case 1:
		s.deliver(ib.New(ib.OpReadResponseMiddle, psn, Data(mtu)))
	case 2:
		s.deliver(ib.Response(ib.OpReadResponseLast, psn, s.msn(), Data(8)))
	case 3:
		s.deliver(ib.ReadResponseOnly(psn, s.msn(), Data(min(8, mtu))))
	case 4:
		if valid.AETH != nil {
			s.deliver(valid.WithSyndrome(0x60 | uint8(step.code)))
		}
	case 5:
		s.deliver(valid.WithPayload(append(append([]byte{}, valid.Payload...), 1, 2, 3, 4)))
	case 6:
		s.deliver(valid.WithPayload(valid.Payload[:max(0, len(valid.Payload)-1-step.n%8)]))
	default:
		s.deliver(ib.Response(ib.OpReadResponseFirst, psn, s.msn(), Data(mtu)))
	}
}

// playDamaged sends an ACK that would acknowledge everything, and that the device has to drop.
func (s *rcRequesterSession) playDamaged(step *requesterStep) {
	_, n := s.model.Outstanding()
	psn, ok := s.outstanding(n - 1)
	if !ok {
		return
	}
	ack := ib.Ack(psn, s.msn())
	switch step.variant % 5 {
	case 0:
		ack = ack.BadICRC()
	case 1:
		ack = ack.WithTVer(uint8(1 + step.n%15))
	case 2:
		ack = ack.WithPKey(0x9234)
	case 3:
		ack = ack.On(ib.UC)
	default:
		if len(s.Peers) < 2 {
			return
		}
		ack = ack.From(s.Peers[1])
	}
	s.Send(ack)
}

// playWait waits until the running timer causes a packet or an error. If none runs, the device
// must send nothing.
func (s *rcRequesterSession) playWait(*requesterStep) {
	_, n := s.model.Outstanding()
	switch {
	case !s.model.Failed() && n > 0 && (s.Attr.Timeout > 0 || s.model.WaitsForRNRTimer()):
		s.await()
	case s.Virtual:
		s.compare(s.Drain(time.Second))
	}
}

func (s *rcRequesterSession) playToErr(*requesterStep) {
	s.ToState(s.QP, verbs.QPStateErr)
	s.model.ToError()
}

func (s *rcRequesterSession) playDrain(*requesterStep) {
	if !s.model.Failed() && !s.draining {
		s.ToState(s.QP, verbs.QPStateSQD)
		s.draining = true
		s.model.Draining(true)
	}
}

// playResume moves the queue pair from SQD to RTS. The device must refuse that while requests are
// outstanding.
func (s *rcRequesterSession) playResume(*requesterStep) {
	switch {
	case s.model.Failed() || !s.draining:
	case s.model.Idle():
		s.ToState(s.QP, verbs.QPStateRTS)
		s.draining = false
		s.model.Draining(false)
	default:
		err := s.QP.Modify(verbs.QPAttr{State: verbs.QPStateRTS}, verbs.QPAttrState)
		s.MustFail("a change to RTS while requests are outstanding", err, nil)
	}
}
