package model

import (
	"encoding/binary"

	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// iwarpSink is the state of received messages.
type iwarpSink struct {
	// msn are the MSNs of the next message of each queue.
	msn   [queues]uint32
	recvs []IWARPRecv
	// partial is a Send of which some segments have arrived; nil if there is none.
	partial *iwarpPartial
	// inWrite: a Write has arrived in part.
	inWrite bool
	// badPlacement: the first receive is Bad, and data has arrived for it.
	badPlacement bool
}

// IWARPRecv is a posted receive.
type IWARPRecv struct {
	ID     uint64
	Pieces []IWARPPiece
	// Bad: its list names memory that the application may not use.
	Bad bool
}

// iwarpPartial is a Send of which n octets have arrived.
type iwarpPartial struct {
	op iwarp.Opcode
	n  int
	// wrongKey: it invalidates a key that it must not. The device may find that at any segment.
	wrongKey bool
}

// PostRecv posts a receive. On an ended stream it completes in error.
func (m *IWARP) PostRecv(recv IWARPRecv) (r IWARPReaction) {
	if m.ended {
		r.Completions = []IWARPCompletion{{ID: recv.ID, Recv: true, Status: flushed(false)}}
		return r
	}
	m.sink.recvs = append(m.sink.recvs, recv)
	return r
}

// Receives returns the number of posted receives that no message has used.
func (m *IWARP) Receives() int { return len(m.sink.recvs) }

// Room returns the length of the k-th posted receive; 0 if there is none.
func (m *IWARP) Room(k int) int {
	if k >= len(m.sink.recvs) {
		return 0
	}
	return piecesLen(m.sink.recvs[k].Pieces)
}

// flush completes all receives in error: the first with LOC_PROT_ERR if data has arrived for memory
// that it may not use.
func (s *iwarpSink) flush() (all []IWARPCompletion) {
	for i, recv := range s.recvs {
		wc := IWARPCompletion{ID: recv.ID, Recv: true, Status: flushed(i == 0)}
		if i == 0 && s.badPlacement {
			wc.Status = []verbs.WCStatus{verbs.WCLocProtErr}
		}
		all = append(all, wc)
	}
	s.recvs = nil
	return all
}

// iwarpFaults are the errors of a segment.
type iwarpFaults struct {
	causes []iwarp.Cause
	// unspecified: the RFCs have no cause for the error, and any will do.
	unspecified bool
}

func (f *iwarpFaults) add(causes ...iwarp.Cause) { f.causes = append(f.causes, causes...) }

// Receive returns the reaction to a segment of the peer, which has all fields set. The stream ends
// with any cause (nil) if the error is not specified, or the segment is for a receive that cannot
// be used.
func (m *IWARP) Receive(s iwarp.Segment) IWARPReaction {
	if m.ended {
		return IWARPReaction{}
	}
	f := m.check(s)
	switch p := m.sink.partial; {
	case p != nil && p.wrongKey && (f.unspecified || len(f.causes) > 0):
		return m.refuse(nil, nil) // because of this segment, or of the key in an earlier one
	case f.unspecified:
		return m.refuse(nil, &s)
	case len(f.causes) > 0:
		return m.refuse(f.causes, &s)
	case m.toBadReceive(s):
		m.sink.badPlacement = true
		return m.refuse(nil, &s)
	}
	return m.accept(s)
}

// toBadReceive reports whether a segment has data for a receive whose memory cannot be used.
func (m *IWARP) toBadReceive(s iwarp.Segment) bool {
	return !*s.DDP.Tagged && *s.DDP.QN == sendQueue && len(s.Payload) > 0 && m.sink.recvs[0].Bad
}

// check returns the errors of a segment. If there are several, a device may report any of them:
// the RFCs do not order the checks.
func (m *IWARP) check(s iwarp.Segment) (f iwarpFaults) {
	if s.Verbatim != nil {
		return iwarpFaults{unspecified: true}
	}
	op, tagged := s.Op(), *s.DDP.Tagged
	switch {
	case *s.DDP.Version != 1 && tagged:
		f.add(iwarp.DDPTaggedInvalidVersion)
	case *s.DDP.Version != 1:
		f.add(iwarp.DDPUntaggedInvalidVersion)
	case *s.RDMAP.Version != 1:
		f.add(iwarp.RDMAPInvalidVersion)
	case !m.supports(op):
		f.add(iwarp.RDMAPUnexpectedOpcode)
	case op.Tagged() != tagged:
		f.unspecified = true
	case op == iwarp.OpWrite:
		f = m.checkWrite(s)
	case op == iwarp.OpReadResponse:
		f.unspecified = !m.source.matches(s)
	default:
		f = m.checkUntagged(s)
	}
	return f
}

// supports reports whether the device has the messages of an opcode.
func (m *IWARP) supports(op iwarp.Opcode) bool {
	return op <= iwarp.OpTerminate || op <= iwarp.OpAtomicResponse && m.Extensions
}

// iwarpFault is an error in the use of an STag.
type iwarpFault int

const (
	unknownKey iwarpFault = iota
	revokedKey
	foreignKey
	missingRight
	outOfBounds
	wrapsAround
)

// writeCauses and readCauses are the causes of Terminates for Writes, and for reads and atomics.
// DDP has no cause for missing rights.
var (
	writeCauses = map[iwarpFault][]iwarp.Cause{
		unknownKey:   {iwarp.DDPTaggedInvalidSTag},
		revokedKey:   {iwarp.DDPTaggedInvalidSTag, iwarp.DDPTaggedSTagNotAssociated},
		foreignKey:   {iwarp.DDPTaggedInvalidSTag, iwarp.DDPTaggedSTagNotAssociated},
		missingRight: {iwarp.DDPTaggedInvalidSTag, iwarp.DDPTaggedSTagNotAssociated, iwarp.RDMAPAccess},
		outOfBounds:  {iwarp.DDPTaggedBounds},
		wrapsAround:  {iwarp.DDPTaggedTOWrap, iwarp.DDPTaggedBounds},
	}
	readCauses = map[iwarpFault][]iwarp.Cause{
		unknownKey:   {iwarp.RDMAPInvalidSTag},
		revokedKey:   {iwarp.RDMAPInvalidSTag, iwarp.RDMAPSTagNotAssociated},
		foreignKey:   {iwarp.RDMAPInvalidSTag, iwarp.RDMAPSTagNotAssociated},
		missingRight: {iwarp.RDMAPAccess},
		outOfBounds:  {iwarp.RDMAPBounds},
		wrapsAround:  {iwarp.RDMAPTOWrap, iwarp.RDMAPBounds},
	}
	invalidateCauses = []iwarp.Cause{iwarp.RDMAPCannotInvalidate, iwarp.RDMAPCannotInvalidateRemote}
)

// keyFaults returns the errors of an access to n octets. An access to no octets needs no key.
func (m *IWARP) keyFaults(at iwarp.Addr, n uint64, right verbs.Access) (faults []iwarpFault) {
	if n == 0 {
		return nil
	}
	k := m.keys[at.STag]
	switch {
	case k == nil:
		return []iwarpFault{unknownKey}
	case k.Revoked:
		return []iwarpFault{revokedKey}
	case k.Foreign:
		return []iwarpFault{foreignKey}
	}
	if k.Access&right == 0 {
		faults = append(faults, missingRight)
	}
	begin := k.Mem.Addr + uint64(k.Off)
	switch end := at.TO + n; {
	case end < at.TO:
		faults = append(faults, wrapsAround)
	case at.TO < begin || end > begin+uint64(k.Len):
		faults = append(faults, outOfBounds)
	}
	return faults
}

// addKeyFaults adds the causes of the errors of an access.
func (f *iwarpFaults) addKeyFaults(faults []iwarpFault, causes map[iwarpFault][]iwarp.Cause) {
	for _, fault := range faults {
		f.add(causes[fault]...)
	}
}

func taggedAddr(s iwarp.Segment) iwarp.Addr { return iwarp.At(*s.DDP.STag, *s.DDP.TO) }

func (m *IWARP) checkWrite(s iwarp.Segment) (f iwarpFaults) {
	f.addKeyFaults(m.keyFaults(taggedAddr(s), uint64(len(s.Payload)), verbs.AccessRemoteWrite), writeCauses)
	return f
}

// checkUntagged checks the queue number, DDP's fields and, if these are right, the message.
func (m *IWARP) checkUntagged(s iwarp.Segment) (f iwarpFaults) {
	op, q := s.Op(), *s.DDP.QN
	switch {
	case op == iwarp.OpTerminate:
		f.unspecified = q != terminateQueue || *s.DDP.MSN != firstMSN || *s.DDP.MO != 0
		return f
	case q >= queues:
		f.add(iwarp.DDPUntaggedInvalidQN)
		return f
	case q != op.Queue():
		f.add(iwarp.DDPUntaggedInvalidQN, iwarp.RDMAPUnexpectedOpcode)
	}
	switch q {
	case sendQueue:
		m.checkSendQueue(s, &f)
	case terminateQueue:
		f.unspecified = true
	default:
		m.checkHeaderQueue(s, &f)
	}
	if len(f.causes) > 0 || f.unspecified {
		return f
	}
	return m.checkMessage(s)
}

// addMSNFault adds the permitted causes of a wrong MSN: out of range if it is not the next one, and
// no buffer if fewer buffers are posted.
func (m *IWARP) addMSNFault(s iwarp.Segment, buffers int, f *iwarpFaults) {
	ahead := *s.DDP.MSN - m.sink.msn[*s.DDP.QN]
	if ahead != 0 {
		f.add(iwarp.DDPUntaggedMSNRange)
	}
	if ahead >= uint32(buffers) {
		f.add(iwarp.DDPUntaggedNoBuffer)
	}
}

// checkSendQueue does DDP's checks for queue 0, whose buffers are receives.
func (m *IWARP) checkSendQueue(s iwarp.Segment, f *iwarpFaults) {
	m.addMSNFault(s, len(m.sink.recvs), f)
	at, n := 0, len(s.Payload)
	if p := m.sink.partial; p != nil {
		at = p.n
		f.unspecified = p.op != s.Op()
	}
	if oneSegment(s.Op()) && (s.Immediate == nil || n > 0) {
		f.unspecified = true // immediate data of a wrong length
	}
	mo := int(*s.DDP.MO)
	if mo != at {
		f.add(iwarp.DDPUntaggedInvalidMO)
	}
	if len(m.sink.recvs) > 0 && mo+n > m.Room(0) {
		f.add(iwarp.DDPUntaggedTooLong)
	}
}

// checkHeaderQueue does DDP's checks for queues 1 and 3, whose buffers are for one header each.
func (m *IWARP) checkHeaderQueue(s iwarp.Segment, f *iwarpFaults) {
	if oldest := m.source.oldest(); *s.DDP.QN == atomicResponseQueue && (oldest == nil || oldest.WR.Opcode == verbs.OpRDMARead) {
		f.unspecified = true // no atomic awaits this response
		return
	}
	m.addMSNFault(s, 1, f) // at least one buffer; the model does not know how many more there are
	if *s.DDP.MO != 0 {
		f.add(iwarp.DDPUntaggedInvalidMO, iwarp.DDPUntaggedTooLong)
	}
}

// checkMessage does RDMAP's checks for an untagged segment on the right queue.
func (m *IWARP) checkMessage(s iwarp.Segment) (f iwarpFaults) {
	switch op := s.Op(); op {
	case iwarp.OpSendInvalidate, iwarp.OpSendSEInvalidate:
		if *s.DDP.Last && !m.CanInvalidate(*s.RDMAP.InvalidateSTag) {
			f.add(invalidateCauses...)
		}
	case iwarp.OpReadRequest:
		f.unspecified = s.Read == nil || len(s.Payload) > 0
		if !f.unspecified {
			f.addKeyFaults(m.keyFaults(sourceAddr(s.Read), uint64(*s.Read.Size), verbs.AccessRemoteRead), readCauses)
		}
	case iwarp.OpAtomicRequest:
		return m.checkAtomic(s)
	case iwarp.OpAtomicResponse:
		f.unspecified = s.AtomicResponse == nil || len(s.Payload) > 0 || !m.source.matches(s)
	}
	return f
}

func sourceAddr(h *iwarp.ReadRequestHeader) iwarp.Addr { return iwarp.At(*h.SrcSTag, *h.SrcTO) }

// checkAtomic checks the header of an Atomic Request, and the STag and alignment of its word.
func (m *IWARP) checkAtomic(s iwarp.Segment) (f iwarpFaults) {
	h := s.AtomicRequest
	if h == nil || len(s.Payload) > 0 || *h.Operation != iwarp.AtomicFetchAdd && *h.Operation != iwarp.AtomicCompareSwap {
		return iwarpFaults{unspecified: true}
	}
	f.addKeyFaults(m.keyFaults(iwarp.At(*h.STag, *h.TO), 8, verbs.AccessRemoteAtomic), readCauses)
	if *h.TO%8 != 0 {
		f.add(iwarp.RDMAPStreamCatastrophic)
	}
	return f
}

// accept returns what a device does with a segment that has no error: it places the payload,
// completes receives and requests, and responds.
func (m *IWARP) accept(s iwarp.Segment) (r IWARPReaction) {
	op := s.Op()
	if oneSegment(op) && !*s.DDP.Last {
		r.Stalled = true // such a message has one segment only
		return r
	}
	switch op {
	case iwarp.OpWrite:
		m.place(taggedAddr(s), s.Payload)
		m.sink.inWrite = !*s.DDP.Last
	case iwarp.OpReadResponse, iwarp.OpAtomicResponse:
		m.acceptResponse(s)
		r.Add(m.advance())
	case iwarp.OpReadRequest:
		m.deliver(requestQueue)
		r.Responses = []IWARPMessage{m.readResponse(s.Read)}
	case iwarp.OpAtomicRequest:
		m.deliver(requestQueue)
		r.Responses = []IWARPMessage{m.atomic(s.AtomicRequest)}
	case iwarp.OpTerminate:
		r = m.End()
		r.Terminated = true
	default:
		r.Completions = m.acceptSend(s)
	}
	return r
}

// oneSegment reports whether messages of the opcode consist of a header in one segment.
func oneSegment(op iwarp.Opcode) bool {
	return !op.Tagged() && (op.Queue() != sendQueue || op == iwarp.OpImmediate || op == iwarp.OpImmediateSE)
}

// place puts data at an address of the device that was checked.
func (m *IWARP) place(at iwarp.Addr, b []byte) {
	if len(b) > 0 {
		mem := m.keys[at.STag].Mem
		copy(mem.Data[at.TO-mem.Addr:], b)
	}
}

// deliver counts a message of a queue, whose delivery implies that earlier data is placed.
func (m *IWARP) deliver(queue uint32) {
	m.sink.msn[queue]++
	m.commitPlacements()
}

// readResponse returns the response to a Read Request that was checked.
func (m *IWARP) readResponse(h *iwarp.ReadRequestHeader) IWARPMessage {
	var source IWARPPiece
	if *h.Size > 0 {
		mem := m.keys[*h.SrcSTag].Mem
		source = IWARPPiece{Mem: mem, Off: int(*h.SrcTO - mem.Addr), Len: int(*h.Size)}
	}
	var b []byte
	if source.Len > 0 {
		b = gather([]IWARPPiece{source})
	}
	return IWARPMessage{Segment: withFixedFields(iwarp.ReadResponse(*h.SinkSTag, *h.SinkTO, b)), source: source}
}

// atomic executes an Atomic Request, whose STag and address the caller has checked, and returns the
// Atomic Response. The 8-byte word in memory has the byte order of this machine.
func (m *IWARP) atomic(h *iwarp.AtomicRequestHeader) IWARPMessage {
	mem := m.keys[*h.STag].Mem
	off := int(*h.TO - mem.Addr)
	was := binary.NativeEndian.Uint64(mem.Data[off:])
	m.executed = append(m.executed, iwarpAtomic{mem: mem, off: off, was: [8]byte(mem.Data[off:])})
	var word [8]byte
	binary.NativeEndian.PutUint64(word[:], atomicResult(h, was))
	mem.Set(off, word[:])
	msn := m.source.nextMSN(atomicResponseQueue)
	return IWARPMessage{Segment: withFixedFields(iwarp.AtomicResponse(msn, *h.ID, was).MO(0))}
}

// atomicResult returns the new value of a word (RFC 7306 section 5.1).
func atomicResult(h *iwarp.AtomicRequestHeader, was uint64) uint64 {
	data, mask := *h.Data, *h.Mask
	if *h.Operation == iwarp.AtomicCompareSwap {
		if (was^*h.Compare)&*h.CompareMask != 0 {
			return was
		}
		return was&^mask | data&mask
	}
	// A one in the mask is the highest bit of a field: its carry is dropped.
	var sum, carry uint64
	for bit := range 64 {
		a, b := was>>bit&1, data>>bit&1
		sum |= (a ^ b ^ carry) << bit
		carry = (a & b) | (a & carry) | (b & carry)
		if mask>>bit&1 == 1 {
			carry = 0
		}
	}
	return sum
}

// acceptSend places a segment of a Send or immediate data, and completes the receive at its end.
func (m *IWARP) acceptSend(s iwarp.Segment) []IWARPCompletion {
	op, recv := s.Op(), m.sink.recvs[0]
	if m.sink.partial == nil {
		invalidates := op == iwarp.OpSendInvalidate || op == iwarp.OpSendSEInvalidate
		m.sink.partial = &iwarpPartial{op: op, wrongKey: invalidates && !m.CanInvalidate(*s.RDMAP.InvalidateSTag)}
	}
	p := m.sink.partial
	scatter(recv.Pieces, p.n, s.Payload)
	p.n += len(s.Payload)
	if !*s.DDP.Last {
		return nil
	}
	m.sink.partial, m.sink.recvs = nil, m.sink.recvs[1:]
	m.deliver(sendQueue)
	wc := IWARPCompletion{
		ID: recv.ID, Recv: true, Status: []verbs.WCStatus{verbs.WCSuccess}, Opcodes: []verbs.WCOpcode{verbs.WCOpRecv},
		Solicited: op == iwarp.OpSendSE || op == iwarp.OpSendSEInvalidate || op == iwarp.OpImmediateSE,
	}
	switch op {
	case iwarp.OpImmediate, iwarp.OpImmediateSE:
		wc.Imm = new(uint32(*s.Immediate.Value))
		wc.Opcodes = append(wc.Opcodes, verbs.WCOpRecvRDMAWithImm)
		return []IWARPCompletion{wc}
	case iwarp.OpSendInvalidate, iwarp.OpSendSEInvalidate:
		wc.Invalidated = s.RDMAP.InvalidateSTag
		m.Revoke(*s.RDMAP.InvalidateSTag)
	}
	wc.Len = new(uint32(p.n))
	return []IWARPCompletion{wc}
}
