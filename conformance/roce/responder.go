package roce

import (
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
)

// Responder is a correct RC responder. It executes requests in the order of their PSNs,
// sends one NAK for a gap, and answers duplicates. It ignores the data of SENDs and WRITEs.
type Responder struct {
	// Memory is what READs return. Its first byte has address Base.
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

// Respond executes a request packet and returns the responses to it.
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

// execute updates the state for a request with the expected PSN.
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
