package model

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

// RCResponder is the responder of an RC or XRC queue pair, or the receiver of a UC queue pair: it
// takes the peer's requests in the order of arrival. Its caller posts receives and registers keys,
// and compares the device with [RCResponder.Take].
type RCResponder struct {
	RCResponderAttr
	// Keys are the R_Keys that give the peer access.
	Keys map[uint32]*RCKey
	// Receives are the posted receives by SRQ number; 0 is the only queue unless the service is XRC.
	Receives map[uint32][]*RCReceive

	failed         bool
	psn            ib.PSN // expected next
	msn            uint32
	nakSent        bool // a sequence NAK was sent, and the expected PSN has not arrived since
	rnrSent        bool // the expected PSN got an RNR NAK
	open           *rcMessage
	lastAck        ib.PSN // of the newest SEND, WRITE or atomic
	lastAckOrFlush ib.PSN // the same, but FLUSH and ATOMIC WRITE count, too
	saved          []rcSaved
	firstKept      int // index: saved requests before this one may be forgotten
	reaction       RCReaction
}

// RCResponderAttr are the attributes of a queue pair on which its responder depends.
type RCResponderAttr struct {
	Transport       ib.Transport
	FirstPSN        ib.PSN
	MTU             int
	MaxDestRdAtomic int
	MinRNRTimer     uint8
	Access          verbs.Access
	HasSRQ          bool
	// InRTR: the first packet will raise COMM_EST.
	InRTR bool
}

// RCReaction is the permitted reaction of a device.
type RCReaction struct {
	Responses   []RCResponse
	Completions []RCCompletion
	// Events must be raised, and MayRaise may be, in any order.
	Events, MayRaise []verbs.AsyncEventType
	// Failed: the queue pair moves to ERR. Dropped: a message was dropped after some of its packets.
	Failed, Dropped bool
}

// RCCompletion is the completion of a receive. Its status is one of Errors, if there are any.
type RCCompletion struct {
	WC     verbs.WC
	Errors []verbs.WCStatus
}

// rcMessage is a SEND or WRITE whose last packet has not arrived.
type rcMessage struct {
	kind        ib.Kind
	queue       uint32     // of an XRC message
	receive     *RCReceive // of a SEND
	mem         *RCMemory  // of a WRITE
	off, length int        // of a WRITE: in mem, and as announced
	arrived     int        // bytes so far
}

// rcSaved is a READ, atomic or the like, of which a duplicate is answered.
type rcSaved struct {
	request  ib.Packet
	packets  int
	original uint64
	msn      uint32 // that counts the request
}

// rcFault is a reason not to execute a request: a NAK, or none if silent.
type rcFault struct {
	code     ib.NakCode
	rnr      bool
	silent   bool
	receives []verbs.WCStatus // possible status of the receive; nil if it is not used
}

var (
	rcInvalid = rcFault{code: ib.NakInvalidRequest}
	rcAccess  = rcFault{code: ib.NakRemoteAccess}
	// rcAnyError are the statuses of a receive whose message fails for a reason on the wire.
	rcAnyError = []verbs.WCStatus{
		verbs.WCLocLenErr, verbs.WCLocQPOpErr, verbs.WCLocProtErr, verbs.WCBadRespErr, verbs.WCLocAccessErr,
		verbs.WCRemInvReqErr, verbs.WCRemAccessErr, verbs.WCRemOpErr, verbs.WCFatalErr, verbs.WCGeneralErr, verbs.WCMWBindErr,
	}
)

// NewRCResponder returns the model of a queue pair in RTR or RTS.
func NewRCResponder(a RCResponderAttr) *RCResponder {
	return &RCResponder{
		RCResponderAttr: a, psn: a.FirstPSN, lastAck: a.FirstPSN.Add(-1), lastAckOrFlush: a.FirstPSN.Add(-1),
		Keys: make(map[uint32]*RCKey), Receives: make(map[uint32][]*RCReceive),
	}
}

// ExpectedPSN returns the PSN of the next new request.
func (m *RCResponder) ExpectedPSN() ib.PSN { return m.psn }

// HasFailed reports whether the queue pair is in ERR.
func (m *RCResponder) HasFailed() bool { return m.failed }

// Remaining returns how many bytes of an open WRITE are missing; 0 if none is open.
func (m *RCResponder) Remaining() int {
	if m.open == nil || m.open.kind != ib.KindWrite {
		return 0
	}
	return m.open.length - m.open.arrived
}

// OpenKind returns the kind of the message whose last packet has not arrived; false if there is none.
func (m *RCResponder) OpenKind() (kind ib.Kind, isOpen bool) {
	if m.open == nil {
		return 0, false
	}
	return m.open.kind, true
}

// Take returns the reaction to all calls since the last one.
func (m *RCResponder) Take() RCReaction {
	r := m.reaction
	m.reaction = RCReaction{}
	for i := range r.Responses {
		r.Responses[i].MaxMSN = m.msn // a device may send a response after it has taken in later packets
	}
	return r
}

// PostReceive posts a receive, which is flushed at once if the queue pair has failed.
func (m *RCResponder) PostReceive(queue uint32, r *RCReceive) {
	if m.failed && !m.HasSRQ {
		m.flush(r)
		return
	}
	m.Receives[queue] = append(m.Receives[queue], r)
	if !m.failed && !m.HasSRQ && m.Transport != ib.UC {
		m.ackAgain(true) // the device may send an ACK with the new credits
	}
}

// CommEstRaised notes that the device has raised an optional COMM_EST.
func (m *RCResponder) CommEstRaised() { m.InRTR = false }

// SetResources changes max_dest_rd_atomic. Requests that the device could forget before (their
// duplicates need no answer) can still be forgotten.
func (m *RCResponder) SetResources(n int) {
	m.firstKept = max(m.firstKept, len(m.saved)-m.MaxDestRdAtomic)
	m.MaxDestRdAtomic = n
}

// Fail moves the queue pair to ERR, as the application may.
func (m *RCResponder) Fail() {
	if m.failed {
		return
	}
	if m.open != nil && m.open.receive != nil {
		errs := append([]verbs.WCStatus{verbs.WCWRFlushErr}, rcAnyError...)
		m.reaction.Completions = append(m.reaction.Completions, RCCompletion{verbs.WC{WRID: m.open.receive.ID}, errs})
	}
	m.enterErr()
}

// Receive takes a packet of the peer that is whole, with a correct ICRC and valid fields of the BTH.
// It returns false, and changes nothing, if the specification leaves the reaction open.
func (m *RCResponder) Receive(p ib.Packet) bool {
	if m.failed || p.Opcode().Transport() != m.Transport {
		return true
	}
	if m.Transport == ib.UC {
		return m.receiveUC(p)
	}
	ahead := p.PSN().Sub(m.psn)
	switch {
	case ahead > 0:
		m.mayRaiseCommEst()
		m.receiveEarly()
		return true
	case ahead < 0:
		return m.duplicate(p)
	}
	info, known := p.Info()
	fault, determined := m.faultOf(p, info, known)
	switch {
	case !determined:
		return false
	case fault == nil:
		m.execute(p, info)
	case fault.rnr:
		m.mayRaiseCommEst()
		m.respond(m.asResponse(ib.RNR(m.psn, m.MinRNRTimer, ib.AnyMSN)), false)
		m.nakSent, m.rnrSent = false, true
	default:
		m.mayRaiseCommEst()
		m.refuse(p, info, fault)
	}
	return true
}

// mayRaiseCommEst permits the event COMM_EST if the queue pair is in RTR.
func (m *RCResponder) mayRaiseCommEst() {
	if m.InRTR {
		m.reaction.MayRaise = append(m.reaction.MayRaise, verbs.EventCommEst)
	}
}

// receiveEarly reacts to a PSN after a gap: by a sequence NAK, once. After an RNR NAK a device
// should not, but may, send it.
func (m *RCResponder) receiveEarly() {
	if !m.nakSent {
		m.respond(m.asResponse(ib.Nak(m.psn, ib.NakSequence, ib.AnyMSN)), m.rnrSent)
		m.nakSent = !m.rnrSent
	}
}

// faultOf returns the fault of a request with the expected PSN, or nil. It is not determined if the
// request has faults with different consequences.
func (m *RCResponder) faultOf(p ib.Packet, info ib.OpInfo, known bool) (fault *rcFault, determined bool) {
	faults := m.faults(p, info, known)
	for i := range faults {
		if faults[i].code != faults[0].code || faults[i].rnr != faults[0].rnr || faults[i].silent != faults[0].silent {
			return nil, false
		}
	}
	switch {
	case len(faults) == 0:
		return nil, true
	case len(faults) > 1 && faults[0].receives == nil && slices.ContainsFunc(faults, func(f rcFault) bool { return f.receives != nil }):
		return nil, false // any fault may be found first, and so a receive may be used or not
	}
	// Whether a SEND that is refused for its form takes a receive of an SRQ is not specified.
	mayTakeReceive := info.Kind == ib.KindSend && m.HasSRQ && m.open == nil && faults[0].receives == nil && !faults[0].rnr
	return &faults[0], !mayTakeReceive && m.rangeIsDetermined(p)
}

// rcMaxMessage is the largest length of a message.
const rcMaxMessage = 1 << 31

// rangeIsDetermined is false for a request of several packets that begins inside a key's range and
// ends outside: a device may check the range at once, or of each packet. A length that no message
// can have is refused in any case.
func (m *RCResponder) rangeIsDetermined(p ib.Packet) bool {
	if p.RETH == nil || *p.RETH.Len <= uint32(m.MTU) {
		return true
	}
	k := m.Keys[*p.RETH.RKey]
	if k == nil {
		return true
	}
	_, inside := k.offset(*p.RETH.VA, 1)
	return !inside || *p.RETH.Len > rcMaxMessage
}

// faults returns all faults of a request, in its order, length, access and receive.
func (m *RCResponder) faults(p ib.Packet, info ib.OpInfo, known bool) (all []rcFault) {
	if !known || m.isOutOfOrder(info) {
		return []rcFault{rcInvalid}
	}
	if m.hasWrongLength(p, info) {
		all = append(all, rcInvalid)
	}
	switch info.Kind {
	case ib.KindReadRequest, ib.KindAtomic, ib.KindFlush, ib.KindAtomicWrite:
		if m.MaxDestRdAtomic == 0 {
			all = append(all, rcInvalid)
		}
	}
	all = append(all, m.accessFaults(p, info)...)
	return append(all, m.receiveFaults(p, info)...)
}

// isOutOfOrder reports whether the packet continues no open message, or begins within one.
func (m *RCResponder) isOutOfOrder(info ib.OpInfo) bool {
	begins := info.Position == ib.First || info.Position == ib.Only
	if m.open == nil {
		return !begins
	}
	return begins || info.Kind != m.open.kind
}

// hasWrongLength reports whether the payload or the length in the RETH is wrong.
func (m *RCResponder) hasWrongLength(p ib.Packet, info ib.OpInfo) bool {
	n := len(p.Payload)
	if p.BTH.PadCnt != nil && p.Pad == nil {
		n -= int(*p.BTH.PadCnt) // a wrong count: the device takes the last bytes of the payload for pad
	}
	switch {
	case info.Payload == ib.PayloadFull && n != m.MTU, info.Payload == ib.PayloadSome && n == 0,
		info.Payload == ib.PayloadEight && n != 8, info.Payload == ib.PayloadNone && n != 0, n > m.MTU:
		return true
	case p.RETH != nil && *p.RETH.Len > rcMaxMessage:
		return true
	case info.Kind == ib.KindAtomicWrite:
		return *p.RETH.Len != 8
	case info.Kind != ib.KindWrite:
		return false
	}
	switch info.Position {
	case ib.Only:
		return int(*p.RETH.Len) != n
	case ib.First:
		return int(*p.RETH.Len) < n
	case ib.Middle:
		return m.open.arrived+n > m.open.length
	}
	return m.open.arrived+n != m.open.length
}

// rcRight returns the right that an operation needs from the queue pair and from the key.
func rcRight(kind ib.Kind) verbs.Access {
	switch kind {
	case ib.KindWrite, ib.KindAtomicWrite:
		return verbs.AccessRemoteWrite
	case ib.KindReadRequest:
		return verbs.AccessRemoteRead
	case ib.KindAtomic:
		return verbs.AccessRemoteAtomic
	case ib.KindFlush:
		return verbs.AccessFlushGlobal
	}
	return 0
}

// rcTarget returns the address, key and length that a request accesses; false if it has none.
func rcTarget(p ib.Packet) (va uint64, rkey uint32, n int, ok bool) {
	switch {
	case p.AtomicETH != nil:
		return *p.AtomicETH.VA, *p.AtomicETH.RKey, 8, true
	case p.RETH != nil:
		return *p.RETH.VA, *p.RETH.RKey, int(*p.RETH.Len), true
	}
	return 0, 0, 0, false
}

// accessFaults returns the faults of a request's access to memory.
func (m *RCResponder) accessFaults(p ib.Packet, info ib.OpInfo) (all []rcFault) {
	va, rkey, n, ok := rcTarget(p)
	if !ok {
		return nil
	}
	right := rcRight(info.Kind)
	if m.Access&right == 0 {
		all = append(all, rcInvalid)
		if n == 0 {
			return append(all, rcAccess) // which of the two is not specified
		}
	}
	if n == 0 {
		return all // no key is needed
	}
	if (info.Kind == ib.KindAtomic || info.Kind == ib.KindAtomicWrite) && va%8 != 0 {
		all = append(all, rcInvalid)
	}
	k := m.Keys[rkey]
	if k == nil || k.Access&right == 0 {
		return append(all, rcAccess)
	}
	if _, inside := k.offset(va, n); !inside {
		all = append(all, rcAccess)
	}
	return all
}

// receiveFaults returns the faults of a packet that uses a receive. If the reaction is not
// specified, it returns two faults with different consequences, of which faultOf chooses none.
func (m *RCResponder) receiveFaults(p ib.Packet, info ib.OpInfo) (all []rcFault) {
	begins := info.Position == ib.First || info.Position == ib.Only
	isSend := info.Kind == ib.KindSend
	queue, found := m.queue(p)
	if !found {
		return []rcFault{rcInvalid}
	}
	var r *RCReceive
	switch {
	case isSend && !begins:
		r = m.open.receive
	case isSend || info.Has(ib.HdrImmDt):
		if len(m.Receives[queue]) == 0 {
			return []rcFault{{rnr: true}}
		}
		r = m.Receives[queue][0]
	default:
		return nil
	}
	if !isSend {
		if r.BadKey {
			return []rcFault{{rnr: true}, rcInvalid} // not specified: a WRITE does not use the receive's memory
		}
		return nil
	}
	arrived := len(p.Payload)
	if !begins {
		arrived += m.open.arrived
	}
	if arrived > r.room() {
		all = append(all, rcFault{code: ib.NakInvalidRequest, receives: []verbs.WCStatus{verbs.WCLocLenErr}})
	}
	if r.BadKey {
		all = append(all, rcFault{code: ib.NakRemoteOp, receives: []verbs.WCStatus{verbs.WCLocProtErr}})
		if len(p.Payload) == 0 {
			all = append(all, rcInvalid) // not specified: without payload the receive's memory is not used
		}
	}
	if p.IETH != nil {
		if k := m.Keys[*p.IETH.RKey]; k == nil || !k.CanInvalidate {
			all = append(all, rcFault{silent: true, receives: rcAnyError})
		}
	}
	return all
}

// queue returns the SRQ number of an XRC packet; false if no SRQ of the domain has it.
func (m *RCResponder) queue(p ib.Packet) (srqn uint32, found bool) {
	if m.Transport != ib.XRC {
		return 0, true
	}
	srqn = *p.XRCETH.SRQ
	_, found = m.Receives[srqn]
	return srqn, found
}

// execute executes a valid request with the expected PSN, and adds its effects to the reaction:
// responses, completions and events.
func (m *RCResponder) execute(p ib.Packet, info ib.OpInfo) {
	if m.InRTR {
		m.reaction.Events = append(m.reaction.Events, verbs.EventCommEst)
		m.InRTR = false
	}
	m.nakSent, m.rnrSent = false, false
	switch info.Kind {
	case ib.KindSend, ib.KindWrite:
		m.executeMessage(p, info)
	case ib.KindReadRequest:
		m.msn = (m.msn + 1) & 0xffffff
		m.save(p, ib.Packets(int(*p.RETH.Len), m.MTU), 0)
		m.answerRead(p, 0)
	default:
		m.msn = (m.msn + 1) & 0xffffff
		m.save(p, 1, m.executeAtomic(p, info))
		m.respond(m.savedAnswer(&m.saved[len(m.saved)-1]), false)
		m.lastAckOrFlush = p.PSN()
		if info.Kind == ib.KindAtomic { // whether an ACK counts FLUSH and ATOMIC WRITE is not specified
			m.lastAck = p.PSN()
		}
	}
}

// executeMessage takes a packet of a SEND or WRITE: the first one opens the message, each places
// its payload, and the last one completes the message.
func (m *RCResponder) executeMessage(p ib.Packet, info ib.OpInfo) {
	queue, _ := m.queue(p)
	if info.Position == ib.First || info.Position == ib.Only {
		m.open = &rcMessage{kind: info.Kind, queue: queue}
		if info.Kind == ib.KindSend {
			m.open.receive = m.consume(queue)
		} else if n := int(*p.RETH.Len); n > 0 {
			k := m.Keys[*p.RETH.RKey]
			m.open.mem, m.open.length = k.Mem, n
			m.open.off, _ = k.offset(*p.RETH.VA, n)
		}
	}
	m.place(p.Payload)
	m.lastAck, m.lastAckOrFlush, m.psn = p.PSN(), p.PSN(), m.psn.Add(1)
	if info.Position == ib.Last || info.Position == ib.Only {
		m.finish(p, info)
	}
	m.respond(m.asResponse(ib.Ack(p.PSN(), ib.AnyMSN)), !p.HasAckReq())
}

// consume takes the first receive of a queue.
func (m *RCResponder) consume(queue uint32) *RCReceive {
	r := m.Receives[queue][0]
	m.Receives[queue] = m.Receives[queue][1:]
	return r
}

// place notes the payload of the open message's next packet.
func (m *RCResponder) place(payload []byte) {
	switch msg := m.open; {
	case msg.receive != nil:
		msg.receive.scatter(msg.arrived, payload)
	case msg.mem != nil:
		msg.mem.mayHold(msg.off+msg.arrived, payload)
	}
	m.open.arrived += len(payload)
}

// finish completes the open message with its last packet, and the receive that it uses: that of a
// SEND, or one for immediate data of a WRITE.
func (m *RCResponder) finish(p ib.Packet, info ib.OpInfo) {
	msg := m.open
	m.open = nil
	m.msn = (m.msn + 1) & 0xffffff
	wc := verbs.WC{ByteLen: uint32(msg.arrived), Opcode: verbs.WCOpRecv}
	if msg.mem != nil {
		msg.mem.complete()
	}
	switch {
	case msg.receive != nil:
		wc.WRID = msg.receive.ID
		msg.receive.Mem.complete()
	case info.Has(ib.HdrImmDt):
		wc.WRID, wc.Opcode = m.consume(msg.queue).ID, verbs.WCOpRecvRDMAWithImm
	default:
		return
	}
	if p.Imm != nil {
		wc.Flags, wc.Imm = verbs.WCWithImm, *p.Imm.Data
	}
	if p.IETH != nil {
		wc.Flags, wc.InvalidatedRKey = verbs.WCWithInv, verbs.RKey(*p.IETH.RKey)
		delete(m.Keys, *p.IETH.RKey)
	}
	m.reaction.Completions = append(m.reaction.Completions, RCCompletion{WC: wc})
}

// save keeps a READ or atomic for duplicates, and advances the expected PSN.
func (m *RCResponder) save(p ib.Packet, packets int, original uint64) {
	m.saved = append(m.saved, rcSaved{p, packets, original, m.msn})
	m.psn = m.psn.Add(packets)
}

// executeAtomic executes an atomic, ATOMIC WRITE or FLUSH, and returns the word's original value.
func (m *RCResponder) executeAtomic(p ib.Packet, info ib.OpInfo) (original uint64) {
	va, rkey, n, _ := rcTarget(p)
	if info.Kind == ib.KindFlush {
		return 0
	}
	k := m.Keys[rkey]
	off, _ := k.offset(va, n)
	word := k.Mem.Bytes[off:][:8]
	original = binary.NativeEndian.Uint64(word)
	switch {
	case info.Kind == ib.KindAtomicWrite:
		copy(word, p.Payload)
	case p.Opcode().Operation() == ib.OpFetchAdd:
		binary.NativeEndian.PutUint64(word, original+*p.AtomicETH.SwapAdd)
	case original == *p.AtomicETH.Compare:
		binary.NativeEndian.PutUint64(word, *p.AtomicETH.SwapAdd)
	}
	return original
}

// savedAnswer returns the response to an atomic, FLUSH or ATOMIC WRITE.
func (m *RCResponder) savedAnswer(s *rcSaved) ib.Packet {
	if s.request.AtomicETH == nil {
		return m.asResponse(ib.ReadResponseOnly(s.request.PSN(), ib.AnyMSN, []byte{}))
	}
	return m.asResponse(ib.AtomicAck(s.request.PSN(), ib.AnyMSN, s.original))
}

// answerRead responds to a READ. A duplicate may request only the last responses of the original
// READ: then skipped is the number of the others, and the opcodes may be those of a new READ or
// those of the original.
func (m *RCResponder) answerRead(p ib.Packet, skipped int) {
	n := int(*p.RETH.Len)
	data, certain := []byte{}, true
	if n > 0 {
		k := m.Keys[*p.RETH.RKey]
		off, _ := k.offset(*p.RETH.VA, n)
		data, certain = slices.Clone(k.Mem.Bytes[off:][:n]), k.Mem.isCertain(off, n)
	}
	all := ib.ReadResponses(p.PSN(), ib.AnyMSN, data, m.MTU)
	for i, r := range all {
		alternative := ib.New(ib.OpReadResponseMiddle, r.PSN(), r.Payload)
		if i == len(all)-1 {
			alternative = ib.Response(ib.OpReadResponseLast, r.PSN(), ib.AnyMSN, r.Payload)
		}
		if !certain {
			r.Payload, alternative.Payload = nil, nil
		}
		m.respond(m.asResponse(r), false)
		response := &m.reaction.Responses[len(m.reaction.Responses)-1]
		if skipped > 0 {
			response.Alternative = new(m.asResponse(alternative))
		} else if i < len(all)-1 {
			response.MinMSN = (m.msn - 1) & 0xffffff // only the last response must count the READ
		}
	}
}

// duplicate reacts to a PSN before the expected one. It returns false if the specification leaves
// the reaction open.
func (m *RCResponder) duplicate(p ib.Packet) bool {
	info, known := p.Info()
	if !known || info.Response {
		return false
	}
	m.mayRaiseCommEst()
	if info.Kind == ib.KindSend || info.Kind == ib.KindWrite {
		m.ackAgain(!p.HasAckReq())
		return true
	}
	i := slices.IndexFunc(m.saved, func(s rcSaved) bool {
		at := p.PSN().Sub(s.request.PSN())
		return at >= 0 && at < s.packets
	})
	switch {
	case i < 0:
		return info.Kind == ib.KindReadRequest // a READ is dropped; for other kinds it is open
	case i < max(m.firstKept, len(m.saved)-m.MaxDestRdAtomic):
		return false // the device need not remember it
	case info.Kind == ib.KindReadRequest:
		return m.duplicateRead(p, &m.saved[i]) && m.mayAckLater()
	}
	same := slices.Equal(p.BodyBytes(), m.saved[i].request.BodyBytes()) && p.Opcode() == m.saved[i].request.Opcode()
	if m.saved[i].request.Opcode().Operation() == ib.OpReadRequest {
		return false
	}
	m.respond(m.savedAnswer(&m.saved[i]), !same)
	m.reaction.Responses[len(m.reaction.Responses)-1].MinMSN = m.saved[i].msn
	return m.mayAckLater()
}

// duplicateRead answers a duplicate of a READ or of its tail, and drops a READ that is not within
// the original. It returns false if the specification leaves the reaction open.
func (m *RCResponder) duplicateRead(p ib.Packet, s *rcSaved) bool {
	skipped := p.PSN().Sub(s.request.PSN())
	if s.request.Opcode() != p.Opcode() {
		return true
	}
	tail := s.request.RETH.Skip(skipped * m.MTU)
	switch {
	case *p.RETH.RKey != *tail.RKey, *p.RETH.VA < *tail.VA, *p.RETH.VA+uint64(*p.RETH.Len) > *tail.VA+uint64(*tail.Len):
		return true
	case *p.RETH.VA != *tail.VA, *p.RETH.Len != *tail.Len:
		return false // another part of the original
	}
	if faults := m.accessFaults(p, ib.OpInfo{Kind: ib.KindReadRequest}); len(faults) > 0 {
		if faults[0].code != ib.NakRemoteAccess {
			return false
		}
		m.refuse(p, ib.OpInfo{Kind: ib.KindReadRequest}, &rcAccess)
		return true
	}
	before := len(m.reaction.Responses)
	m.answerRead(p, skipped)
	for i := range m.reaction.Responses[before:] { // with the MSN of the original, or the present one
		m.reaction.Responses[before+i].MinMSN = (s.msn - 1) & 0xffffff
	}
	m.reaction.Responses[len(m.reaction.Responses)-1].MinMSN = s.msn
	return true
}

// ackAgain responds with an ACK of the newest request that is no READ. Whether FLUSH and ATOMIC
// WRITE count as READs is not specified.
func (m *RCResponder) ackAgain(optional bool) {
	m.respond(m.asResponse(ib.Ack(m.lastAck, ib.AnyMSN)), optional)
	m.reaction.Responses[len(m.reaction.Responses)-1].Alternative = new(m.asResponse(ib.Ack(m.lastAckOrFlush, ib.AnyMSN)))
}

// mayAckLater permits that the ACK of an earlier duplicate follows the response to this one. It
// always returns true (the reaction is determined), so that callers can return its result.
func (m *RCResponder) mayAckLater() bool {
	if slices.ContainsFunc(m.reaction.Responses, func(r RCResponse) bool { return r.Packet.IsAck(ib.AckPositive) }) {
		m.ackAgain(true)
	}
	return true
}

// refuse moves the queue pair to ERR because of an invalid request. It responds with a NAK, unless
// the fault is silent, and completes a receive that the request uses in error.
func (m *RCResponder) refuse(p ib.Packet, info ib.OpInfo, f *rcFault) {
	if !f.silent {
		m.respond(m.asResponse(ib.Nak(p.PSN(), f.code, ib.AnyMSN)), false)
	}
	statuses := f.receives
	queue, _ := m.queue(p)
	var used *RCReceive
	switch begins := info.Position == ib.First || info.Position == ib.Only; {
	case m.open != nil && m.open.receive != nil:
		used = m.open.receive
		if statuses == nil {
			statuses = rcAnyError
		}
	case info.Kind == ib.KindSend && begins && m.open == nil && len(m.Receives[queue]) > 0 && !m.HasSRQ:
		used = m.consume(queue)
		if statuses == nil { // the device may have taken the receive before it found the fault
			statuses = append([]verbs.WCStatus{verbs.WCWRFlushErr}, rcAnyError...)
		}
	case info.Kind == ib.KindSend && begins && statuses != nil: // a fault of a receive of an SRQ
		used = m.consume(queue)
	}
	if used != nil {
		if !used.BadKey && info.Kind == ib.KindSend && f.receives != nil { // the payload may be placed
			arrived := 0
			if m.open != nil {
				arrived = m.open.arrived
			}
			used.scatter(arrived, p.Payload)
		}
		m.reaction.Completions = append(m.reaction.Completions, RCCompletion{verbs.WC{WRID: used.ID}, statuses})
	}
	m.raiseRefusal(f, used != nil)
	m.enterErr()
}

// raiseRefusal adds the event of a refused request, which is required if no receive reports it.
func (m *RCResponder) raiseRefusal(f *rcFault, reported bool) {
	event := verbs.EventQPReqErr
	if f.code == ib.NakRemoteAccess {
		event = verbs.EventQPAccessErr
	}
	if reported {
		m.reaction.MayRaise = append(m.reaction.MayRaise, event, verbs.EventQPFatal, verbs.EventQPAccessErr, verbs.EventQPReqErr)
		return
	}
	m.reaction.Events = append(m.reaction.Events, event)
}

// enterErr moves the queue pair to ERR and flushes its receives, but not those of an SRQ.
func (m *RCResponder) enterErr() {
	m.failed, m.open, m.reaction.Failed = true, nil, true
	switch {
	case m.Transport == ib.XRC: // it has no SRQ of its own
		m.reaction.MayRaise = append(m.reaction.MayRaise, verbs.EventQPLastWQEReached)
		return
	case m.HasSRQ:
		m.reaction.Events = append(m.reaction.Events, verbs.EventQPLastWQEReached)
		return
	}
	for _, r := range m.Receives[0] {
		m.flush(r)
	}
	m.Receives[0] = nil
}

func (m *RCResponder) flush(r *RCReceive) {
	m.reaction.Completions = append(m.reaction.Completions, RCCompletion{verbs.WC{WRID: r.ID}, []verbs.WCStatus{verbs.WCWRFlushErr}})
}

// respond adds a response with the present MSN and credits.
func (m *RCResponder) respond(p ib.Packet, optional bool) {
	if m.Transport == ib.UC {
		return // nothing is acknowledged
	}
	credits := -1 // with an SRQ no credits may be advertised
	if !m.HasSRQ {
		credits = len(m.Receives[0])
		if m.open != nil && m.open.receive != nil {
			credits++
		}
	}
	m.reaction.Responses = append(m.reaction.Responses, RCResponse{Packet: p, Optional: optional, MinMSN: m.msn, MaxCredits: credits})
}

// asResponse returns p as a response of the connection's service; AckReq and SE are always 0.
func (m *RCResponder) asResponse(p ib.Packet) ib.Packet {
	if m.Transport == ib.XRC {
		p = p.On(ib.XRC)
	}
	return p.NoAckReq().NoSE()
}

// rcRange formats a value, or a range of values, with its name.
func rcRange(name string, from, to int) string {
	if from == to {
		return fmt.Sprintf("%s %d", name, from)
	}
	return fmt.Sprintf("%s %d to %d", name, from, to)
}
