package rocewire

import "github.com/fabrictest/fabrictest/emu/softroce/wire"

const becn = 0x40 // in byte 4

// solicit (AckSolicited) sets SE on acknowledgements, which solicit nothing.
func solicit(_ *Edge, p *packet) bool { return p.mark(1, solicited) }

// warn (AckBECN) has acknowledgements tell of congestion, as only CNPs do.
func warn(_ *Edge, p *packet) bool { return p.mark(4, becn) }

// mark sets bits in a byte of an acknowledgement.
func (p *packet) mark(at int, bits byte) bool {
	if p.is(wire.OpAcknowledge) {
		p.Payload[at] |= bits
		p.changed = true
	}
	return true
}

// limited (AckPKeyLimited) takes the membership off the P_Key of acknowledgements.
func limited(_ *Edge, p *packet) bool {
	if p.is(wire.OpAcknowledge) {
		p.Payload[2] &^= fullMember >> 8
		p.changed = true
	}
	return true
}

// loadAck (AckPayload) sends what is left over of a buffer behind the AETH.
func loadAck(_ *Edge, p *packet) bool {
	if p.is(wire.OpAcknowledge) {
		p.setData(p.Payload[:p.info().HeaderLen], []byte{0xa5, 0xa5, 0xa5, 0xa5})
	}
	return true
}

// versionOfAnswers (ResponseTVerUnchecked) shows the engine answers of the version
// that it expects.
func versionOfAnswers(_ *Edge, p *packet) bool {
	if p.class().Has(wire.Response) && p.Payload[1]&version != 0 {
		p.Payload[1] &^= version
		p.changed = true
	}
	return true
}

// stretched (ResponseLengthUnchecked) pads first and middle READ responses that are too
// short to the MTU, so that the engine does not detect them.
func stretched(e *Edge, p *packet) bool {
	if !p.is(wire.OpReadResponseFirst) && !p.is(wire.OpReadResponseMiddle) {
		return true
	}
	_, q, ok := e.talkIn(p)
	if data := p.data(); ok && data != nil && len(data) < q.MTU {
		full := make([]byte, q.MTU)
		copy(full, data)
		p.setData(p.Payload[:p.info().HeaderLen], full)
	}
	return true
}
