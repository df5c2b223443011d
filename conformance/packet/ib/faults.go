package ib

import (
	"bytes"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance/packet"
)

// Fault is a rule that holds for every RoCEv2 packet, and what was found in a packet instead.
type Fault struct{ Rule, Found string }

// Faults returns the rules that a parsed packet violates. Of the IP and UDP headers it checks only
// the checksums, and those not if the packet is from a socket. It does not compare the payload with
// the path MTU.
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
	check(int(*h.PadCnt) == -n&3, "PadCnt fills the payload up to a multiple of four bytes", "%d for %d bytes", *h.PadCnt, n)
	check(p.AETH == nil || !p.AETH.isReserved(), "the syndrome is not a reserved one", "%v", p)
	check(op != OpCNP || p.PSN() == 0 && allZero(p.Payload), "a CNP has PSN 0 and reserved bytes of 0", "PSN %d, %x", p.PSN(), p.Payload)
	if !p.fromSocket { // a socket does not report the headers
		ip, udp := p.checksumsRight()
		check(ip, "the checksum of the IPv4 header is right", "%v with %#04x", p, packet.Get(p.IP.Checksum, 0))
		check(udp, "the UDP checksum is 0 or right", "%v with %#04x", p, *p.UDP.Checksum)
	}
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
		return n == cnpPayloadLen
	}
	return true
}

// checksumsRight reports whether the checksum of an IPv4 header is right, and that of UDP right or
// 0.
func (p Packet) checksumsRight() (ip, udp bool) {
	_, datagram, _, _ := packet.ParseIP(p.raw)
	ip = p.IP.Is6() || packet.Checksum(p.raw[:len(p.raw)-len(datagram)]) == 0
	if *p.UDP.Checksum == 0 {
		return ip, true
	}
	_, payload, _, _ := packet.ParseUDP(datagram)
	h := p.UDP
	h.Checksum = nil // Append computes it
	return ip, bytes.Equal(h.Append(nil, p.IP, payload)[:udpLen], datagram[:udpLen])
}

// isReserved reports whether the syndrome has a reserved kind or NAK code.
func (h *AETH) isReserved() bool {
	return *h.Kind == AckReserved || *h.Kind > AckNegative || *h.Kind == AckNegative && *h.Value > uint8(NakInvalidRD)
}

func allZero(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

// reservedExtensionBits returns the bitwise OR of the reserved fields of DETH, XRCETH and FETH.
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
