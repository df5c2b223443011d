package model

import (
	"bytes"
	"slices"

	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// IWARP is the reference model of a connected iWARP queue pair: DDP (RFC 5041), RDMAP (RFC 5040)
// and its extensions (RFC 7306). It takes the segments of the peer and the work requests of the
// application, and returns the messages, completions and errors of a correct device.
type IWARP struct {
	// Extensions: the device has atomics and immediate data.
	Extensions bool
	// ORD is the largest number of outstanding reads and atomics of the device.
	ORD int

	keys     map[uint32]*IWARPKey
	memories []*IWARPMemory
	sink     iwarpSink
	source   iwarpSource
	// executed are the atomics whose responses the device may not have sent.
	executed []iwarpAtomic
	ended    bool
}

// iwarpAtomic is an executed atomic, with the content of its word before.
type iwarpAtomic struct {
	mem *IWARPMemory
	off int
	was [8]byte
}

// ResponsesSeen notes that the device has sent all responses, and thus executed all requests.
func (m *IWARP) ResponsesSeen() { m.executed = nil }

// NewIWARP returns the model of a queue pair on which no message was exchanged. With extensions,
// the device has atomics and immediate data.
func NewIWARP(extensions bool, ord int) *IWARP {
	m := &IWARP{Extensions: extensions, ORD: ord, keys: make(map[uint32]*IWARPKey)}
	for q := range m.sink.msn {
		m.sink.msn[q], m.source.msn[q] = firstMSN, firstMSN
	}
	return m
}

const firstMSN = 1

// The queues of untagged messages.
const (
	sendQueue = iota
	requestQueue
	terminateQueue
	atomicResponseQueue
	queues
)

// SkipPeerMSN counts a message of the start-up in a queue of the device.
func (m *IWARP) SkipPeerMSN(queue uint32) { m.sink.msn[queue]++ }

// SkipDeviceMSN counts a message of the start-up in a queue of the peer.
func (m *IWARP) SkipDeviceMSN(queue uint32) { m.source.msn[queue]++ }

// PeerMSN is the MSN of the next message of the peer to a queue.
func (m *IWARP) PeerMSN(queue uint32) uint32 { return m.sink.msn[queue] }

// Ended reports whether the stream has ended.
func (m *IWARP) Ended() bool { return m.ended }

// IWARPMemory is memory of the device.
type IWARPMemory struct {
	Addr uint64
	// Data is the content when all data that arrived is placed.
	Data []byte
	// before is the content when data that arrived but is not delivered is not placed: DDP may
	// place it at any time until a later message is delivered.
	before []byte
}

// AddMemory adds memory of the device with its initial content.
func (m *IWARP) AddMemory(addr uint64, content []byte) *IWARPMemory {
	mem := &IWARPMemory{Addr: addr, Data: slices.Clone(content), before: slices.Clone(content)}
	m.memories = append(m.memories, mem)
	return mem
}

// Set changes the memory as the application does.
func (mem *IWARPMemory) Set(off int, b []byte) {
	copy(mem.Data[off:], b)
	copy(mem.before[off:], b)
}

// Differs compares the content of the device's memory, got, with the model. It returns the offset
// of the first byte that the model does not permit; false if it permits all of them.
func (mem *IWARPMemory) Differs(got []byte) (off int, found bool) {
	for i, b := range got {
		if b != mem.Data[i] && b != mem.before[i] {
			return i, true
		}
	}
	return 0, false
}

// commitPlacements notes that all data that has arrived is placed, as a delivered message implies.
func (m *IWARP) commitPlacements() {
	for _, mem := range m.memories {
		copy(mem.before, mem.Data)
	}
}

// IWARPKey is what an STag gives access to.
type IWARPKey struct {
	Mem      *IWARPMemory
	Off, Len int
	Access   verbs.Access
	// Foreign: the STag is of another protection domain or stream.
	Foreign bool
	// Window: the STag can be invalidated.
	Window bool
	// Revoked: it was invalidated or deregistered.
	Revoked bool
}

// SetKey makes an STag valid.
func (m *IWARP) SetKey(stag uint32, k IWARPKey) { m.keys[stag] = &k }

// Revoke makes an STag invalid.
func (m *IWARP) Revoke(stag uint32) {
	if k := m.keys[stag]; k != nil {
		k.Revoked = true
	}
}

// CanInvalidate reports whether a Send with Invalidate may have the STag.
func (m *IWARP) CanInvalidate(stag uint32) bool {
	k := m.keys[stag]
	return k != nil && k.Window && !k.Revoked && !k.Foreign
}

// IWARPPiece is an element of a scatter/gather list.
type IWARPPiece struct {
	Mem      *IWARPMemory
	Off, Len int
}

// scatter places b in the pieces, from offset at of the list on.
func scatter(pieces []IWARPPiece, at int, b []byte) {
	for _, p := range pieces {
		if at < p.Len && len(b) > 0 {
			n := copy(p.Mem.Data[p.Off:][at:p.Len], b)
			b = b[n:]
			at += n
		}
		at -= p.Len
	}
}

// gather returns the content of the pieces.
func gather(pieces []IWARPPiece) (b []byte) {
	for _, p := range pieces {
		b = append(b, p.Mem.Data[p.Off:][:p.Len]...)
	}
	return b
}

// piecesLen returns the total length of the pieces.
func piecesLen(pieces []IWARPPiece) (n int) {
	for _, p := range pieces {
		n += p.Len
	}
	return n
}

// IWARPMessage is a message of the device.
type IWARPMessage struct {
	// Segment has the fields and the whole payload. The device may split it into segments.
	Segment iwarp.Segment
	// Imm is in one half of the immediate data: verbs have four octets of it, RDMAP eight.
	Imm *uint32

	// source is the memory that a Read Response was read from.
	source IWARPPiece
	// later are other contents that it may have: see NoteLaterWrites.
	later [][]byte
}

// NoteLaterWrites notes that the Read Responses, which the device may not have sent yet, may also
// have the present content of their source: RFC 5040 section 5.5 does not order a read and a
// later Write.
func (r *IWARPReaction) NoteLaterWrites() {
	for i := range r.Responses {
		if m := &r.Responses[i]; m.source.Len > 0 {
			b := gather([]IWARPPiece{m.source})
			last := m.Segment.Payload
			if len(m.later) > 0 {
				last = m.later[len(m.later)-1]
			}
			if !bytes.Equal(b, last) {
				m.later = append(m.later, b)
			}
		}
	}
}

// Permitted returns got if the message may have it as payload from offset at on, or else the
// payload without later Writes. Each octet of a Read Response may be that of a later Write: see
// NoteLaterWrites.
func (m *IWARPMessage) Permitted(at int, got []byte) []byte {
	want := m.Segment.Payload[at:][:len(got)]
	for i, b := range got {
		if b != want[i] && !slices.ContainsFunc(m.later, func(later []byte) bool { return later[at+i] == b }) {
			return want
		}
	}
	return got
}

// IWARPCompletion is a completion of the device. Nil fields are not determined.
type IWARPCompletion struct {
	ID          uint64
	Recv        bool
	Status      []verbs.WCStatus // nil: any error
	Opcodes     []verbs.WCOpcode // of a success
	Len         *uint32
	Imm         *uint32
	Invalidated *uint32
	Solicited   bool
	// Optional: the completion may be absent.
	Optional bool

	// released: the request was sent and completed in this reaction.
	released, unsignaled bool
}

// IWARPRefusal is the end of the stream because of a segment of the peer.
type IWARPRefusal struct {
	// Causes are the permitted causes of the Terminate. Nil: any, and the device may also end
	// the stream without a Terminate.
	Causes []iwarp.Cause
	// Wrong is the segment that the Terminate quotes; nil if it quotes nothing.
	Wrong *iwarp.Segment
	// Local: the error is one of the application, and the cause has layer 0, type 0, any code.
	Local bool
}

// IWARPReaction is what the device does after a segment or work requests.
type IWARPReaction struct {
	// Responses and Requests are the messages that it sends. Each list is in order; the order of
	// a response and a request is not determined.
	Responses, Requests []IWARPMessage
	// Completions are in order for requests, and in order for receives.
	Completions []IWARPCompletion
	// Refusal is set if the device ends the stream with an error of the peer.
	Refusal *IWARPRefusal
	// Terminated: the peer has sent a Terminate, and the device ends the stream.
	Terminated bool
	// Stalled: the message is incomplete, and the device may wait or end the stream.
	Stalled bool
}

// Add appends a later reaction. If that ends the stream, some earlier requests may be flushed.
func (r *IWARPReaction) Add(later IWARPReaction) {
	r.Responses = append(r.Responses, later.Responses...)
	r.Requests = append(r.Requests, later.Requests...)
	r.Completions = append(r.Completions, later.Completions...)
	r.Terminated, r.Stalled = r.Terminated || later.Terminated, r.Stalled || later.Stalled
	if r.Refusal == nil {
		r.Refusal = later.Refusal
	}
	if later.Refusal != nil || later.Terminated {
		r.relaxRequests()
	}
}

// relaxRequests permits the flush of requests that the device could send only right before the
// stream ended, because it may not have sent them. Unsignaled ones then have an optional
// completion.
func (r *IWARPReaction) relaxRequests() {
	for i := range r.Completions {
		if wc := &r.Completions[i]; wc.released {
			wc.Status, wc.Optional = []verbs.WCStatus{verbs.WCSuccess, verbs.WCWRFlushErr}, wc.unsignaled
			wc.unsignaled = false
		}
	}
}

// Completed returns the completions without those of requests that are not signaled.
func (r *IWARPReaction) Completed() []IWARPCompletion {
	return slices.DeleteFunc(slices.Clone(r.Completions), func(wc IWARPCompletion) bool { return wc.unsignaled })
}

// withFixedFields sets the fields of a message of the device that are the same in all segments.
func withFixedFields(s iwarp.Segment) iwarp.Segment {
	op := s.Op()
	s = s.Tagged(op.Tagged()).DDPReserved(0).DV(1).RDMAPReserved(0).RV(1)
	if op.Tagged() {
		return s
	}
	return s.QN(op.Queue()).InvalidateSTag(iwarp.Val(s.RDMAP.InvalidateSTag))
}

// End ends the stream: work that is not complete completes in error.
func (m *IWARP) End() (r IWARPReaction) {
	if m.ended {
		return r
	}
	m.ended = true
	r.Completions = append(m.source.flush(), m.sink.flush()...)
	return r
}

// refuse ends the stream with an error. The device sends a Terminate with one of the causes, which
// quotes the segment wrong, or nothing if that is nil. Atomics without a response may not have been
// executed.
func (m *IWARP) refuse(causes []iwarp.Cause, wrong *iwarp.Segment) IWARPReaction {
	r := m.End()
	r.Refusal = &IWARPRefusal{Causes: causes, Wrong: wrong}
	for _, a := range m.executed { // the device may have dropped those that it had not executed
		copy(a.mem.before[a.off:], a.was[:])
	}
	return r
}

// RefuseFrame ends the stream with an error of MPA. The Terminate for that quotes no segment.
func (m *IWARP) RefuseFrame(causes ...iwarp.Cause) IWARPReaction {
	if m.ended {
		return IWARPReaction{}
	}
	return m.refuse(causes, nil)
}

// Receiving reports whether a message of the peer has arrived in part.
func (m *IWARP) Receiving() bool {
	q := m.source.oldest()
	return m.sink.partial != nil || m.sink.inWrite || q != nil && q.answered > 0
}

// flushed returns the permitted statuses of flushed work. The first of a queue may have any error
// (nil), because it may have caused the flush.
func flushed(first bool) []verbs.WCStatus {
	if first {
		return nil
	}
	return []verbs.WCStatus{verbs.WCWRFlushErr}
}
