package dgwire

import (
	"encoding/binary"
	"math"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	ddp "github.com/fabrictest/fabrictest/emu/iwarp/wire"
)

// mostRemembered bounds what an Edge remembers of messages that are under way: when
// there are more, it begins anew.
const mostRemembered = 1 << 12

// isSend reports whether a segment on UD is of a message to queue 0.
func isSend(p *packet, h *ddp.Header) bool {
	return p.Kind == wire.KindUD && !h.Control.Tagged && h.Untagged.QN == ddp.QueueSend
}

// isRecord reports whether it is one of a Write-Record.
func isRecord(p *packet, h *ddp.Header) bool {
	return p.Kind == wire.KindUD && h.Control.Tagged && h.Control.Opcode == wire.OpWriteRecord
}

// cut (CutsAtRandom) makes two segments of one: a third of the payload, and the
// rest.
func cut(e *Edge, p *packet) bool {
	h, body, ok := p.segment()
	payload, record := body, wire.WriteRecord{}
	switch {
	case !ok || p.Kind != wire.KindUD:
		return true
	case isRecord(p, &h):
		var err error
		if payload, err = record.Parse(body); err != nil {
			return true
		}
	case h.Control.Opcode != ddp.OpSend && h.Control.Opcode != ddp.OpSendSE && h.Control.Opcode != ddp.OpWrite:
		return true
	}
	if len(payload) < 2 {
		return true
	}
	n := max(len(payload)/3, 1)
	part := func(p *packet, h ddp.Header, r wire.WriteRecord, payload []byte) {
		if isRecord(p, &h) {
			payload = append(r.Append(nil), payload...)
		}
		p.setSegment(&h, payload)
	}
	first, control := p.copied(), h
	control.Control.Last = false
	part(&first, control, record, payload[:n])
	e.queue = append(e.queue, first)
	h.Tagged.TO += uint64(n)
	h.Untagged.MO += uint32(n)
	record.MO += uint32(n)
	part(p, h, record, payload[n:])
	return true
}

// swapRecord (RecordFieldsSwapped) exchanges number and offset of a Write-Record.
func swapRecord(_ *Edge, p *packet) bool {
	h, body, ok := p.segment()
	var r wire.WriteRecord
	if !ok || !isRecord(p, &h) {
		return true
	}
	if payload, err := r.Parse(body); err == nil {
		r.MSN, r.MO = r.MO, r.MSN
		p.setSegment(&h, append(r.Append(nil), payload...))
	}
	return true
}

// numbers (NumbersByPeer) is how messages to a peer and from it are counted.
type numbers struct {
	original uint32 // number of the message that left last, as the engine counts
	sent     uint32 // and as the peer is told
	arrived  uint32 // of the message that came last; 0 if none has
}

func (e *Edge) numbersOf(k peer) *numbers {
	n := e.numbers[k]
	if n == nil {
		n = new(numbers)
		e.numbers[k] = n
	}
	return n
}

// numberOf is where the number of a message on UD stands in its packet; nil if it
// has none.
func numberOf(p *packet) []byte {
	h, body, ok := p.segment()
	switch {
	case ok && isSend(p, &h):
		return p.ULPDU[ddp.ControlLen+8:][:4]
	case ok && isRecord(p, &h) && len(body) >= wire.WriteRecordLen:
		return body[:4]
	}
	return nil
}

// numberByPeer counts messages from 1 on for each destination.
func numberByPeer(e *Edge, p *packet) bool {
	b := numberOf(p)
	if b == nil {
		return true
	}
	n := e.numbersOf(p.to())
	if original := binary.BigEndian.Uint32(b); original != n.original {
		n.original = original
		n.sent++
	}
	binary.BigEndian.PutUint32(b, n.sent)
	return true
}

// nextNumber loses a message of a known source whose number is not the next.
func nextNumber(e *Edge, p *packet) bool {
	b := numberOf(p)
	if b == nil {
		return true
	}
	n, msn := e.numbersOf(p.from()), binary.BigEndian.Uint32(b)
	if n.arrived != 0 && msn != n.arrived && msn != n.arrived+1 {
		return false
	}
	n.arrived = msn
	return true
}

// message (SegmentsInOrder) is a Send of several segments, target where a Write
// goes.
type (
	message struct {
		from peer
		msn  ddp.MSN
	}
	target struct {
		from peer
		stag ddp.STag
	}
)

// follows loses segments that do not begin where the one before ended.
func follows(e *Edge, p *packet) bool {
	h, body, ok := p.segment()
	switch {
	case !ok || p.Kind != wire.KindUD:
		return true
	case isSend(p, &h):
		return e.sendFollows(p, &h, len(body))
	case h.Control.Tagged && h.Control.Opcode == ddp.OpWrite:
		return e.writeFollows(p, &h, len(body))
	}
	return true
}

func (e *Edge) sendFollows(p *packet, h *ddp.Header, n int) bool {
	const never = math.MaxUint32
	k, mo := message{p.from(), h.Untagged.MSN}, h.Untagged.MO
	next := e.messages[k] // 0 of one that is not known
	good := mo == next
	switch {
	case h.Control.Last && good:
		delete(e.messages, k)
	case good:
		e.messages[k] = mo + uint32(n)
	default:
		e.messages[k] = never // the rest is lost too
	}
	if len(e.messages) > mostRemembered {
		clear(e.messages)
	}
	return good
}

// writeFollows reports whether a tagged segment continues its RDMA Write at the expected
// offset, or begins one.
func (e *Edge) writeFollows(p *packet, h *ddp.Header, n int) bool {
	k, to := target{p.from(), h.Tagged.STag}, h.Tagged.TO
	end, begun := e.writes[k]
	good := !begun || to == end
	switch {
	case h.Control.Last:
		delete(e.writes, k) // the next segment begins another Write
	case good:
		e.writes[k] = to + uint64(n)
	}
	if len(e.writes) > mostRemembered {
		clear(e.writes)
	}
	return good
}

// bareError (ErrorWithoutHeader) takes from an error message all but the reason.
func bareError(_ *Edge, p *packet) bool {
	h, body, ok := p.segment()
	if ok && !h.Control.Tagged && h.Control.Opcode == ddp.OpTerminate && len(body) >= ddp.TerminateLen {
		p.setSegment(&h, []byte{body[0], body[1], 0, 0})
	}
	return true
}

// twice (ErrorsFlood) sends error messages of UD twice, with zeros behind them.
func twice(e *Edge, p *packet) bool {
	const zeros = 64
	if p.isError() {
		p.ULPDU = append(p.ULPDU[:len(p.ULPDU):len(p.ULPDU)], make([]byte, zeros)...)
		e.queue = append(e.queue, p.copied())
	}
	return true
}

// answerError (ErrorsFlood) answers an error message with another: it is an opcode
// that nobody expects.
func answerError(e *Edge, p *packet) bool {
	if q, ok := e.qp(p.DstQP); !ok || q.Reliable || !p.isError() || p.toGroup() {
		return true
	}
	h, _, _ := p.segment()
	t := ddp.Terminate{Error: ddp.TermOpOpcode, HasLength: true, HasDDP: true, SegmentLength: uint16(len(p.ULPDU)), DDP: h}
	a := p.answer(wire.KindUD)
	a.setSegment(
		&ddp.Header{Control: ddp.NewControl(ddp.OpTerminate, true), Untagged: ddp.Untagged{QN: ddp.QueueTerminate, MSN: ddp.FirstMSN}},
		t.Append(nil),
	)
	e.queue = append(e.queue, a)
	return true
}
