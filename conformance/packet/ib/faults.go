package ib

import "fmt"

// Fault is a rule that holds for every RoCEv2 packet, and what was found in a packet instead.
type Fault struct{ Rule, Found string }

// Faults returns the rules that a parsed packet violates. It does not check the IP and UDP headers,
// and no length against the path MTU.
func (p Packet) Faults() (faults []Fault) {
	check := func(ok bool, rule, format string, args ...any) {
		if !ok {
			faults = append(faults, Fault{rule, fmt.Sprintf(format, args...)})
		}
	}
	err := p.CheckICRC()
	check(err == nil, "the ICRC is right", "%v", err)
	if p.raw == nil || p.ICRC == nil {
		return faults // the other fields were not parsed
	}
	h, op := p.BTH, p.Opcode()
	check(*h.TVer == 0, "TVer is 0", "%d", *h.TVer)
	check(*h.Resv6 == 0 && *h.Resv7 == 0, "reserved bits are 0", "%#02x beside the congestion bits, %#02x beside AckReq", *h.Resv6, *h.Resv7)
	extensions := p.reservedExtensionBits()
	check(extensions == 0, "reserved bits are 0", "%#x in an extension header", extensions)
	info, known := op.Info()
	check(!*h.AckReq || !info.Response && info.Kind != KindCNP, "responses and CNPs do not ask for acknowledgements", "AckReq on %v", op)
	endsMessage := info.Position == Last || info.Position == Only
	maySolicit := endsMessage && (info.Kind == KindSend || info.Kind == KindWrite && info.Has(HdrImmDt))
	check(!*h.SE || maySolicit, "only the end of a SEND or of a WRITE with immediate data is solicited", "SE on %v", op)
	n := len(p.Payload)
	check(!known || info.Payload.allows(n), "the payload is as long as the opcode allows", "%v with %d bytes", op, n)
	return faults
}

// allows reports whether the rule allows n bytes of payload. Since the path MTU is unknown, a full
// packet may have any length but 0.
func (r PayloadRule) allows(n int) bool {
	switch r {
	case PayloadNone:
		return n == 0
	case PayloadFull, PayloadSome:
		return n > 0
	case PayloadEight:
		return n == 8
	case PayloadCNP:
		return n == 16
	}
	return true
}

// reservedExtensionBits returns the union of the reserved fields of the extension headers.
func (p Packet) reservedExtensionBits() (bits uint32) {
	if h := p.DETH; h != nil {
		bits |= uint32(*h.Resv)
	}
	if h := p.XRCETH; h != nil {
		bits |= uint32(*h.Resv)
	}
	if h := p.FETH; h != nil {
		bits |= *h.Resv
	}
	return bits
}
