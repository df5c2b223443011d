package model

import (
	"encoding/binary"

	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// iwarpSource is the state of sent messages.
type iwarpSource struct {
	// msn are the MSNs of the next message of each queue.
	msn [queues]uint32
	// queue are the posted requests that are not complete, in order.
	queue []*IWARPRequest
}

// IWARPRequest is a posted send request.
type IWARPRequest struct {
	WR verbs.SendWR
	// Pieces is the scatter/gather list: the source of Sends and Writes, the sink of others.
	Pieces []IWARPPiece
	// Key is the new key of a bind.
	Key IWARPKey
	// Bad: its list names memory that the application may not use.
	Bad bool

	sent, done bool
	// failed: the device has tried to send it although it is Bad.
	failed bool
	// sink and id are those of the device's request, from the wire.
	sink iwarp.Addr
	id   uint32
	// answered is how many octets of a Read Response have arrived.
	answered int
	observed bool
}

// awaitsResponse reports whether the request completes with a response of the peer.
func (q *IWARPRequest) awaitsResponse() bool {
	switch q.WR.Opcode {
	case verbs.OpRDMARead, verbs.OpAtomicFetchAdd, verbs.OpAtomicCmpAndSwp:
		return true
	}
	return false
}

// signaled reports whether a successful request has a completion.
func (q *IWARPRequest) signaled() bool { return q.WR.Flags&verbs.SendSignaled != 0 }

// payload returns the data of a Send or Write.
func (q *IWARPRequest) payload() []byte {
	if q.WR.Flags&verbs.SendInline != 0 {
		return q.WR.Inline
	}
	return gather(q.Pieces)
}

// PostSend posts requests. On an ended stream they complete in error.
func (m *IWARP) PostSend(requests ...*IWARPRequest) (r IWARPReaction) {
	for _, q := range requests {
		if m.ended {
			r.Completions = append(r.Completions, IWARPCompletion{ID: q.WR.WRID, Status: flushed(false)})
			continue
		}
		m.source.queue = append(m.source.queue, q)
	}
	r.Add(m.advance())
	return r
}

// Idle reports whether all requests are complete.
func (m *IWARP) Idle() bool { return len(m.source.queue) == 0 }

// Queued returns the number of requests that are not complete.
func (m *IWARP) Queued() int { return len(m.source.queue) }

// Outstanding returns the requests that the device has sent and that await a response, in order.
func (m *IWARP) Outstanding() []*IWARPRequest { return m.source.outstanding() }

// outstanding returns the requests that were sent and await a response, in order.
func (s *iwarpSource) outstanding() (all []*IWARPRequest) {
	for _, q := range s.queue {
		if q.sent && !q.done && q.awaitsResponse() {
			all = append(all, q)
		}
	}
	return all
}

// oldest returns the request whose response is next; nil if there is none.
func (s *iwarpSource) oldest() *IWARPRequest {
	if all := s.outstanding(); len(all) > 0 {
		return all[0]
	}
	return nil
}

func (s *iwarpSource) nextMSN(queue uint32) uint32 {
	s.msn[queue]++
	return s.msn[queue] - 1
}

// Observe notes the sink or the identifier that the device has chosen for its oldest Read or
// Atomic Request that was not observed.
func (m *IWARP) Observe(s iwarp.Segment) {
	if s.Read == nil && s.AtomicRequest == nil {
		return
	}
	for _, q := range m.Outstanding() {
		if q.observed {
			continue
		}
		q.observed = true
		if s.Read != nil {
			q.sink = iwarp.At(*s.Read.SinkSTag, *s.Read.SinkTO)
		} else {
			q.id = *s.AtomicRequest.ID
		}
		return
	}
}

// Response returns the response to the k-th outstanding request; false if there is no such request.
// Of a Read Response it returns the part that has not arrived. data(n) returns n octets for it.
func (m *IWARP) Response(k int, data func(n int) []byte) (iwarp.Segment, bool) {
	all := m.Outstanding()
	if k >= len(all) {
		return iwarp.Segment{}, false
	}
	q := all[k]
	if q.WR.Opcode == verbs.OpRDMARead {
		return iwarp.ReadResponse(q.sink.STag, q.sink.TO+uint64(q.answered), data(piecesLen(q.Pieces)-q.answered)), true
	}
	earlierAtomics := uint32(0)
	for _, earlier := range all[:k] {
		if earlier.WR.Opcode != verbs.OpRDMARead {
			earlierAtomics++
		}
	}
	return iwarp.AtomicResponse(m.sink.msn[atomicResponseQueue]+earlierAtomics, q.id, binary.BigEndian.Uint64(data(8))), true
}

// matches reports whether r is the next segment of the response to the oldest request.
func (s *iwarpSource) matches(r iwarp.Segment) bool {
	q := s.oldest()
	switch {
	case q == nil:
		return false
	case r.Op() == iwarp.OpAtomicResponse:
		return q.WR.Opcode != verbs.OpRDMARead && *r.AtomicResponse.ID == q.id
	case q.WR.Opcode != verbs.OpRDMARead:
		return false
	}
	left := piecesLen(q.Pieces) - q.answered
	n := len(r.Payload)
	return n <= left && (n == left) == *r.DDP.Last &&
		(n == 0 || *r.DDP.STag == q.sink.STag && *r.DDP.TO == q.sink.TO+uint64(q.answered))
}

// acceptResponse places a response that matches the oldest request.
func (m *IWARP) acceptResponse(r iwarp.Segment) {
	q := m.source.oldest()
	if r.Op() == iwarp.OpReadResponse {
		scatter(q.Pieces, q.answered, r.Payload)
		q.answered += len(r.Payload)
		if *r.DDP.Last {
			q.done = true
			m.commitPlacements()
		}
		return
	}
	scatter(q.Pieces, 0, binary.NativeEndian.AppendUint64(nil, *r.AtomicResponse.Original))
	q.done = true
	m.deliver(atomicResponseQueue)
}

// advance sends the requests that can be sent, in order, and completes those that are done. A
// request with memory that the application may not use (Bad) ends the stream.
func (m *IWARP) advance() (r IWARPReaction) {
	if m.ended {
		return r
	}
	s := &m.source
	released := make(map[*IWARPRequest]bool) // sent and done in this call
	for _, q := range s.queue {
		if q.sent {
			continue
		}
		fenced := q.WR.Flags&verbs.SendFence != 0 && len(s.outstanding()) > 0
		if fenced || q.awaitsResponse() && len(s.outstanding()) == m.ORD {
			break
		}
		if q.Bad {
			q.failed = true
			failed := m.refuse([]iwarp.Cause{}, nil)
			failed.Refusal.Local = true // instead of causes
			r.Add(failed)
			return r
		}
		q.sent, q.done = true, !q.awaitsResponse()
		released[q] = q.done
		r.Requests = append(r.Requests, m.messages(q)...)
	}
	for len(s.queue) > 0 && s.queue[0].done {
		q := s.queue[0]
		wc := q.success()
		wc.released, wc.unsignaled = released[q], !q.signaled()
		r.Completions = append(r.Completions, wc)
		s.queue = s.queue[1:]
	}
	return r
}

// messages returns the messages of a request. A bind or invalidation of a memory window has none,
// and is executed here.
func (m *IWARP) messages(q *IWARPRequest) (all []IWARPMessage) {
	wr := &q.WR
	one := func(s iwarp.Segment) []IWARPMessage { return []IWARPMessage{{Segment: withFixedFields(s)}} }
	write := iwarp.Write(uint32(wr.Remote.RKey), wr.Remote.Addr, nil)
	switch wr.Opcode {
	case verbs.OpSend, verbs.OpSendInv:
		return one(m.sendMessage(q))
	case verbs.OpRDMAWrite:
		return one(write.WithPayload(q.payload()))
	case verbs.OpRDMAWriteImm:
		imm := iwarp.Op(iwarp.OpImmediate)
		if wr.Flags&verbs.SendSolicited != 0 {
			imm = iwarp.Op(iwarp.OpImmediateSE)
		}
		imm = imm.MSN(m.source.nextMSN(sendQueue)).MO(0).WithPayload(nil)
		return append(one(write.WithPayload(q.payload())), IWARPMessage{Segment: withFixedFields(imm), Imm: &wr.Imm})
	case verbs.OpRDMARead:
		s := iwarp.ReadRequest(m.source.nextMSN(requestQueue), iwarp.Addr{}, uint32(piecesLen(q.Pieces)), iwarp.At(uint32(wr.Remote.RKey), wr.Remote.Addr))
		s.Read.SinkSTag, s.Read.SinkTO = nil, nil // the device chooses them
		return one(s.MO(0))
	case verbs.OpAtomicFetchAdd, verbs.OpAtomicCmpAndSwp:
		return one(m.atomicRequest(wr))
	case verbs.OpBindMW:
		m.SetKey(uint32(wr.Bind.RKey), q.Key)
	case verbs.OpLocalInv:
		m.Revoke(uint32(wr.InvalidateRKey))
	}
	return nil
}

// sendMessage returns the message of a Send, with the opcode that its flags select.
func (m *IWARP) sendMessage(q *IWARPRequest) iwarp.Segment {
	msn, solicited := m.source.nextMSN(sendQueue), q.WR.Flags&verbs.SendSolicited != 0
	switch {
	case q.WR.Opcode == verbs.OpSendInv && solicited:
		return iwarp.SendSEInvalidate(msn, uint32(q.WR.InvalidateRKey), q.payload())
	case q.WR.Opcode == verbs.OpSendInv:
		return iwarp.SendInvalidate(msn, uint32(q.WR.InvalidateRKey), q.payload())
	case solicited:
		return iwarp.SendSE(msn, q.payload())
	}
	return iwarp.Send(msn, q.payload())
}

// atomicRequest returns the message of an atomic, with the values that its unused fields must have.
func (m *IWARP) atomicRequest(wr *verbs.SendWR) iwarp.Segment {
	msn, at := m.source.nextMSN(requestQueue), iwarp.At(uint32(wr.Remote.RKey), wr.Remote.Addr)
	s, mask := iwarp.FetchAdd(msn, 0, at, wr.Atomic.CompareAdd), uint64(0)
	if wr.Opcode == verbs.OpAtomicCmpAndSwp {
		s, mask = iwarp.CompareSwap(msn, 0, at, wr.Atomic.CompareAdd, wr.Atomic.Swap), ^uint64(0)
	}
	return s.MO(0).EditAtomic(func(h *iwarp.AtomicRequestHeader) {
		h.ID = nil // the device chooses it
		h.Reserved, h.Mask, h.CompareMask = new(uint32(0)), &mask, new(^uint64(0))
	})
}

// success returns the completion of a request.
func (q *IWARPRequest) success() IWARPCompletion {
	wc := IWARPCompletion{ID: q.WR.WRID, Status: []verbs.WCStatus{verbs.WCSuccess}, Opcodes: []verbs.WCOpcode{wcOpcodes[q.WR.Opcode]}}
	if q.WR.Opcode == verbs.OpRDMARead {
		wc.Len = new(uint32(piecesLen(q.Pieces)))
	}
	return wc
}

// flush ends all requests, and returns the completions that the device may report for each: flushed, an
// error of its own, or a success if it was done and waited for an earlier one.
func (s *iwarpSource) flush() (all []IWARPCompletion) {
	doneBefore := true // all earlier requests were done
	for _, q := range s.queue {
		wc := IWARPCompletion{ID: q.WR.WRID, Status: flushed(doneBefore)}
		switch {
		case q.failed:
			wc.Status = []verbs.WCStatus{verbs.WCLocProtErr}
		case q.Bad: // the device may have checked its scatter/gather list early
			wc.Status = []verbs.WCStatus{verbs.WCLocProtErr, verbs.WCWRFlushErr}
		case q.done:
			wc.Status = []verbs.WCStatus{verbs.WCSuccess, verbs.WCWRFlushErr}
			wc.Opcodes = []verbs.WCOpcode{wcOpcodes[q.WR.Opcode]}
			wc.Optional = !q.signaled()
		}
		doneBefore = doneBefore && q.done
		all = append(all, wc)
	}
	s.queue = nil
	return all
}
