package rocewire

import (
	"bytes"
	"slices"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

const (
	reserved6 = 0x3f // in byte 4
	reserved7 = 0x7f // in byte 8
	serviceOf = 0xe0 // in byte 0
	version   = 0x0f // in byte 1
)

// asExpected (BTHUnchecked) shows the engine a packet of the version and the
// service that its QP expects. Congestion notifications stay what they are.
func asExpected(e *Edge, p *packet) bool {
	service := wire.TransportUD
	if num := p.destQP(); num != gsiQPN && num != uint32(verbs.MulticastQPN) {
		q, ok := e.qp(num)
		if !ok {
			return true
		}
		service = q.Service
	}
	p.Payload[1] &^= version
	if p.opcode() != wire.CNP {
		p.Payload[0] = p.Payload[0]&^serviceOf | byte(service)
	}
	p.changed = true
	return true
}

// completed (MissingHeadersZero) adds zeros where a packet ends before its
// headers do.
func completed(_ *Edge, p *packet) bool {
	body, _ := p.split()
	if missing := p.info().HeaderLen - len(body); missing > 0 {
		p.setData(slices.Concat(body, make([]byte, missing)), nil)
	}
	return true
}

// setReserved (ReservedBitsSent) sets the bits that have no meaning.
func setReserved(_ *Edge, p *packet) bool {
	p.Payload[4] |= reserved6
	p.Payload[8] |= reserved7
	p.changed = true
	return true
}

// nothingReserved (ReservedBitsChecked) loses packets with such a bit set.
func nothingReserved(_ *Edge, p *packet) bool {
	return p.Payload[4]&reserved6 == 0 && p.Payload[8]&reserved7 == 0
}

// invertSolicited (SolicitedInverted) inverts SE where it counts: on what
// completes a receive.
func invertSolicited(_ *Edge, p *packet) bool {
	if p.class().Has(wire.CompletesRecv) {
		p.Payload[1] ^= solicited
		p.changed = true
	}
	return true
}

// askNothing (AckReqNever) takes AckReq off SENDs and WRITEs.
func askNothing(_ *Edge, p *packet) bool {
	if p.reliable() && p.class()&(wire.Send|wire.Write) != 0 {
		p.Payload[8] &^= ackReq
		p.changed = true
	}
	return true
}

// askAnyway (UnreliableAckReq) asks for acknowledgements where there are none.
func askAnyway(_ *Edge, p *packet) bool {
	t := p.opcode().Transport()
	if t == wire.TransportUC && p.class().Has(wire.End) || t == wire.TransportUD && p.destQP() != gsiQPN {
		p.Payload[8] |= ackReq
		p.changed = true
	}
	return true
}

// padToTwo (PadSloppy) pads payloads to two bytes only, with a stale one.
func padToTwo(_ *Edge, p *packet) bool {
	const stale = 0xa5
	data := p.data()
	if wire.PadLen(len(data)) == 0 {
		return true
	}
	n := len(data) % 2
	headers := p.Payload[:p.info().HeaderLen]
	p.Payload = slices.Concat(headers, data, bytes.Repeat([]byte{stale}, n), make([]byte, wire.ICRCLen))
	p.Payload[1] = p.Payload[1]&^padBits | byte(n)<<4
	p.changed = true
	return true
}

// padIsData (PadDelivered) has the engine take the pad of a SEND for payload.
func padIsData(_ *Edge, p *packet) bool {
	if p.class().Has(wire.Send) && p.pad() > 0 {
		p.Payload[1] &^= padBits
		p.changed = true
	}
	return true
}

// reverse (ByteOrderWrong) turns immediate data around, coming and going, and
// the results of atomics, which only come: one that goes is the peer's.
func reverse(_ *Edge, p *packet) bool {
	for _, h := range []wire.HeaderSet{wire.HasImm, wire.HasAtomicAckETH} {
		b := p.header(h)
		if b == nil || h == wire.HasAtomicAckETH && p.outgoing {
			continue
		}
		slices.Reverse(b)
		p.changed = true
	}
	return true
}

// moveXRCETH (XRCETHMisplaced) takes the XRC header off requests and puts one on
// answers.
func moveXRCETH(_ *Edge, p *packet) bool {
	if p.opcode().Transport() != wire.TransportXRC {
		return true
	}
	if p.class().Has(wire.Response) {
		p.insert(wire.BTHLen, make([]byte, wire.XRCETHLen))
		return true
	}
	p.Payload = slices.Delete(p.Payload, wire.BTHLen, wire.BTHLen+wire.XRCETHLen)
	p.changed = true
	return true
}
