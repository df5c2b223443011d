package verbsapi

import (
	"encoding/binary"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance/model"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// Offsets in the memory of the partner.
const (
	wordOffset   = 2 << 10 // words for atomics
	targetOffset = 4 << 10 // targets of WRITEs, and sources of READs
)

// request is a request of the device, with its expected completion and effect.
type request struct {
	verbs.SendWR
	wc     verbs.WC
	expect func() // checks memory after the request was executed; nil for no check
}

// post posts one to four requests in one call, and checks their effects. n varies their number and
// arguments. The last is a fenced SEND: when the partner has received it, the device has executed
// the others.
func (s *trafficSession) post(l *trafficLink, n int) {
	if least, _ := l.Sends.Room(); least < 4 {
		s.pollAll()
	}
	var requests []*request
	for i := range n % 4 {
		requests = append(requests, s.request(l, n/4+i*7, i))
	}
	last := s.sendRequest(l, n%5*13, 3)
	last.Flags |= verbs.SendFence | verbs.SendSignaled
	requests = append(requests, last)
	wrs := make([]verbs.SendWR, 0, len(requests))
	for _, r := range requests {
		if r.Opcode == verbs.OpSend || r.Opcode == verbs.OpSendImm || r.Opcode == verbs.OpRDMAWriteImm {
			l.partner.postRecv(r.WRID, peerSlot(r.WRID), maxPayload)
		}
		wrs = append(wrs, r.SendWR)
	}
	s.PostSend(l.dut.qp, wrs...)
	for _, r := range requests {
		s.expectAtPartner(l, r)
		l.Sends.Add(model.VerbsWR{ID: r.WRID, Signaled: l.SignalAll || r.Flags&verbs.SendSignaled != 0, Opcode: r.wc.Opcode})
		l.Sends.Complete(r.wc, false)
	}
	for _, r := range requests {
		if r.expect != nil {
			r.expect()
		}
	}
}

// peerSlot returns the offset of the buffer in which the partner receives the message of a request.
func peerSlot(id uint64) int { return recvOffset + int(id%8)*slotLen }

// expectAtPartner fails the case unless a SEND, or a WRITE with immediate data, completes a receive
// of the partner with the right length and immediate data. It ignores other requests.
func (s *trafficSession) expectAtPartner(l *trafficLink, r *request) {
	if r.Opcode != verbs.OpSend && r.Opcode != verbs.OpSendImm && r.Opcode != verbs.OpRDMAWriteImm {
		return
	}
	n := 0
	for _, sge := range r.SGL {
		n += int(sge.Length)
	}
	n += len(r.Inline)
	if r.Opcode != verbs.OpRDMAWriteImm {
		n += l.partner.grhLen()
	}
	wc := l.partner.ExpectRecv(r.WRID, n)
	hasImm := r.Opcode != verbs.OpSend
	l.partner.Check((wc.Flags&verbs.WCWithImm != 0) == hasImm && (!hasImm || wc.Imm == r.Imm), fmt.Sprintf("immediate data %v, %#x", hasImm, r.Imm), "%s", rig.Describe(&wc))
}

// flags returns the flags of a request, by n.
func flags(n int) (f verbs.SendFlags) {
	if n%2 == 0 {
		f |= verbs.SendSignaled
	}
	if n%3 == 0 {
		f |= verbs.SendFence
	}
	if n%5 == 0 {
		f |= verbs.SendSolicited
	}
	return f
}

// sendRequest returns a SEND, with or without immediate data, from one or two SGEs or inline. i
// selects its buffer, n all else.
func (s *trafficSession) sendRequest(l *trafficLink, n, i int) *request {
	s.lastID++
	size := []int{0, 1, 32, 33, maxPayload}[n%5]
	off := sendOffset + i*maxPayload
	data := rig.Pattern(size, byte(n+int(s.lastID)))
	copy(s.mem.Buf[off:], data)
	wr := verbs.SendWR{WRID: s.lastID, Opcode: verbs.OpSend, Flags: flags(n), UD: l.dut.udDest, SGL: s.mem.SGL(off, size)}
	switch {
	case n%3 == 1 && size <= min(32, s.QueryDevice().MaxInline):
		wr.SGL, wr.Inline, wr.Flags = nil, data, wr.Flags|verbs.SendInline
	case n%3 == 2 && size > 1:
		wr.SGL = []verbs.SGE{s.mem.SGE(off, size/2), s.mem.SGE(off+size/2, size-size/2)}
	}
	if n/15%2 == 0 && isIB(s.Rig) {
		wr.Opcode, wr.Imm = verbs.OpSendImm, uint32(n)<<16|uint32(uint16(s.lastID))
	}
	return &request{SendWR: wr, wc: verbs.WC{Opcode: verbs.WCOpSend}, expect: func() {
		l.partner.ExpectBytes(s.peerMem, peerSlot(wr.WRID)+l.partner.grhLen(), data)
	}}
}

// request returns a SEND or, in three of five calls in requestMix, a WRITE, READ or atomic. i
// selects its buffers, n all else.
func (s *trafficSession) request(l *trafficLink, n, i int) *request {
	if s.mix != requestMix || n%5 < 2 {
		return s.sendRequest(l, n/5, i)
	}
	s.lastID++
	size, local := 1+n/5%maxPayload, readOffset+i*maxPayload
	at := s.peerMem.Remote(targetOffset + i*maxPayload)
	remote := s.peerMem.Buf[targetOffset+i*maxPayload:][:size]
	wr := verbs.SendWR{WRID: s.lastID, Flags: flags(n / 5), SGL: s.mem.SGL(local, size), Remote: at, UD: l.dut.udDest}
	r := &request{SendWR: wr}
	switch {
	case n%5 == 2:
		data := rig.Pattern(size, byte(n))
		copy(s.mem.Buf[local:], data)
		r.Opcode, r.wc.Opcode = verbs.OpRDMAWrite, verbs.WCOpRDMAWrite
		if isIB(s.Rig) && n/5%3 == 0 {
			r.Opcode, r.Imm = verbs.OpRDMAWriteImm, uint32(s.lastID)
		}
		if size <= min(32, s.QueryDevice().MaxInline) {
			r.SGL, r.Inline, r.Flags = nil, data, r.Flags|verbs.SendInline
		}
		r.expect = func() { l.partner.ExpectBytes(s.peerMem, targetOffset+i*maxPayload, data) }
	case n%5 == 3 || !s.Caps.Has(verbs.CapAtomics):
		copy(remote, rig.Pattern(size, byte(n+3)))
		s.pair.Partner.QueryPort() // a verb call copies the change to a device on another host
		r.Opcode, r.wc.Opcode, r.wc.ByteLen = verbs.OpRDMARead, verbs.WCOpRDMARead, uint32(size)
		r.expect = func() { s.ExpectBytes(s.mem, local, rig.Pattern(size, byte(n+3))) }
	default:
		s.atomic(r, n, i)
	}
	return r
}

// atomic makes a request a FETCH_ADD or a COMPARE_SWAP, which succeeds, on the i-th word.
func (s *trafficSession) atomic(r *request, n, i int) {
	word, local := wordOffset+s.peerMem.WordOffset(i), readOffset+i*maxPayload
	was := uint64(n) * 0x0123_4567_89ab
	now := was + 1<<40
	binary.NativeEndian.PutUint64(s.peerMem.Buf[word:], was)
	s.pair.Partner.QueryPort() // the verb call copies the word to a device on another host
	r.SGL, r.Remote, r.Atomic = s.mem.SGL(local, 8), s.peerMem.Remote(word), verbs.Atomic{CompareAdd: 1 << 40}
	r.Opcode, r.wc.Opcode, r.wc.ByteLen = verbs.OpAtomicFetchAdd, verbs.WCOpFetchAdd, 8
	if n/5%2 == 0 {
		r.Opcode, r.wc.Opcode, r.Atomic = verbs.OpAtomicCmpAndSwp, verbs.WCOpCompSwap, verbs.Atomic{CompareAdd: was, Swap: now}
	}
	r.expect = func() {
		s.ExpectBytes(s.mem, local, binary.NativeEndian.AppendUint64(nil, was))
		s.pair.Partner.ExpectBytes(s.peerMem, word, binary.NativeEndian.AppendUint64(nil, now))
	}
}

// resizeCQ resizes a CQ, if the device can, to a depth that has room for the completions of several
// steps.
func (s *trafficSession) resizeCQ(step trafficStep) {
	cq := s.cqs[step.cq]
	if !s.Caps.Has(verbs.CapResizeCQ) {
		return
	}
	depth := 48 + step.n%40
	s.Must(fmt.Sprintf("a depth of %d", depth), cq.cq.Resize(depth))
	s.Check(cq.cq.Depth() >= depth, fmt.Sprintf("a depth of %d or more", depth), "%d", cq.cq.Depth())
	cq.Depth = cq.cq.Depth()
}

// setLimit sets the limit of the shared receive queue to at most the number of its receives.
func (s *trafficSession) setLimit(step trafficStep) {
	if s.srq == nil {
		return
	}
	s.poll(s.cqs[1], s.cqs[1].Len()) // after that, the number of receives in the SRQ is known
	limit := step.n % (s.srq.Left + 1)
	s.Note("limit %d of a shared receive queue with %d receives", limit, s.srq.Left)
	s.Must("a limit", s.srq.srq.Modify(verbs.SRQAttr{Limit: limit}, verbs.SRQLimit))
	s.srq.Limit = limit
	got := srqAttr(s.Rig, s.srq.srq)
	s.Check(got.Limit == limit, fmt.Sprintf("a limit of %d", limit), "%d", got.Limit)
}

// moveToErr moves the device's queue pair of a connection to ERR, and with it the model of that
// queue pair, which expects that the receives are flushed. Then it makes another connection.
func (s *trafficSession) moveToErr(step trafficStep) {
	l := s.links[step.qp]
	s.pollAll()
	s.ToState(l.dut.qp, errState)
	l.VerbsQP.Modify(&verbs.QPAttr{State: errState}, verbs.QPAttrState)
	s.pollAll()
	s.expectEvents(nil)
	s.expectCompletionEvents()
	l.close()
	s.connect(step.qp)
}

// receiveTooLong has the partner send a message that is longer than the receive, which must
// complete with LOC_LEN_ERR; the receives after it must be flushed. Then it makes another
// connection.
func (s *trafficSession) receiveTooLong(step trafficStep) {
	l := s.links[step.qp]
	s.pollAll()
	s.postReceives(l, 2)
	l.partner.PostSend(l.partner.qp, l.partner.sendWR(1, sendOffset, maxPayload+1))
	l.VerbsQP.Receive(verbs.WC{Status: verbs.WCLocLenErr}, false, nil)
	l.VerbsQP.Modify(&verbs.QPAttr{State: errState}, verbs.QPAttrState)
	s.pollAll()
	s.AwaitState(l.dut.qp, errState)
	s.expectEvents(l.dut.qp)
	s.expectCompletionEvents()
	l.close()
	s.connect(step.qp)
}
