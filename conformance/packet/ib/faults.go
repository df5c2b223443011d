package ib

import (
	"bytes"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance/packet"
)

// Fault is a violation of a rule that holds for every RoCEv2 packet.
type Fault struct {
	Rule  FaultRule
	Found string
}

func (f Fault) String() string { return string(f.Rule) + ": " + f.Found }

// FaultRule is a rule in words.
type FaultRule string

// Rules that [Packet.Faults] checks.
const (
	FaultICRC       FaultRule = "the ICRC is right"
	FaultIPHeader   FaultRule = "an IPv4 header has no options and a right checksum"
	FaultFragment   FaultRule = "DF is set, and nothing is fragmented"
	FaultUDPSum     FaultRule = "the UDP checksum is 0 or right"
	FaultPadCnt     FaultRule = "PadCnt fills the payload up to a multiple of four bytes"
	FaultPadBytes   FaultRule = "pad bytes are zero"
	FaultTVer       FaultRule = "TVer is 0"
	FaultReserved   FaultRule = "reserved bits are 0"
	FaultPayload    FaultRule = "the payload is as long as the opcode allows"
	FaultAckReq     FaultRule = "responses and CNPs do not ask for acknowledgements"
	FaultUnreliable FaultRule = "unreliable services do not ask for acknowledgements"
	FaultSolicited  FaultRule = "only the end of a SEND or of a WRITE with immediate data is solicited"
	FaultSyndrome   FaultRule = "the syndrome is not a reserved one"
	FaultFetchAdd   FaultRule = "the compare field of a FETCH_ADD is 0"
	FaultCNPContent FaultRule = "a CNP has PSN 0 and reserved bytes of 0"
)

// Faults returns the rules that a parsed packet violates. mtu is the path MTU, or 0 if
// lengths are not to be checked against it.
func (p Packet) Faults(mtu int) []Fault {
	var fs faults
	if err := p.CheckICRC(); err != nil {
		fs.add(FaultICRC, "%v", err)
	}
	if p.raw == nil || p.ICRC == nil {
		return fs // the other fields were not parsed
	}
	if !p.fromSocket { // a socket does not report these headers
		fs.checkIPAndUDP(p)
	}
	fs.checkBTH(p)
	fs.checkPayload(p, mtu)
	fs.checkExtensions(p)
	return fs
}

type faults []Fault

func (fs *faults) add(rule FaultRule, format string, args ...any) {
	*fs = append(*fs, Fault{rule, fmt.Sprintf(format, args...)})
}

// checkIPAndUDP checks the IP and UDP headers.
func (fs *faults) checkIPAndUDP(p Packet) {
	if h := p.IP; !h.Is6() {
		if len(h.Options) > 0 {
			fs.add(FaultIPHeader, "%d bytes of options", len(h.Options))
		}
		correct, _, _ := packet.ParseIPHeader(h.WithoutComputed().Append(nil, p.Raw()[4*int(*h.IHL):]))
		if *correct.Checksum != *h.Checksum {
			fs.add(FaultIPHeader, "checksum %#04x, right is %#04x", *h.Checksum, *correct.Checksum)
		}
		if !*h.DF || *h.ReservedFlag {
			fs.add(FaultFragment, "flags: reserved %v, DF %v", *h.ReservedFlag, *h.DF)
		}
	}
	if sum := *p.UDP.Checksum; sum != 0 {
		_, datagram, _, _ := packet.ParseIP(p.Raw())
		_, payload, _, _ := packet.ParseUDP(datagram)
		correct, _, _, _ := packet.ParseUDP(p.UDP.WithoutComputed().Append(nil, p.IP, payload))
		if *correct.Checksum != sum {
			fs.add(FaultUDPSum, "%#04x, right is %#04x", sum, *correct.Checksum)
		}
	}
}

// checkBTH checks the BTH.
func (fs *faults) checkBTH(p Packet) {
	h := p.BTH
	if *h.TVer != 0 {
		fs.add(FaultTVer, "%d", *h.TVer)
	}
	if *h.Resv6 != 0 || *h.Resv7 != 0 {
		fs.add(FaultReserved, "%#02x beside the congestion bits, %#02x beside AckReq", *h.Resv6, *h.Resv7)
	}
	info, _ := p.Info()
	switch {
	case !*h.AckReq:
	case info.Response || info.Kind == KindCNP:
		fs.add(FaultAckReq, "AckReq on %v", p.Opcode())
	case info.Transport == UC || info.Transport == UD:
		fs.add(FaultUnreliable, "AckReq on %v", p.Opcode())
	}
	endsMessage := info.Position == Last || info.Position == Only
	if *h.SE && !(endsMessage && (info.Kind == KindSend || info.Kind == KindWrite && info.Has(HdrImmDt))) {
		fs.add(FaultSolicited, "SE on %v", p.Opcode())
	}
}

// checkPayload checks padding and payload length; mtu is 0 if it is not known.
func (fs *faults) checkPayload(p Packet, mtu int) {
	n := len(p.Payload)
	if want := -n & 3; int(*p.BTH.PadCnt) != want {
		fs.add(FaultPadCnt, "%d for %d bytes", *p.BTH.PadCnt, n)
	}
	if !allZero(p.Pad) {
		fs.add(FaultPadBytes, "%x", p.Pad)
	}
	info, ok := p.Info()
	if !ok {
		return
	}
	bad := false
	switch info.Payload {
	case PayloadNone:
		bad = n != 0
	case PayloadFull:
		bad = n == 0 || mtu != 0 && n != mtu
	case PayloadSome:
		bad = n == 0 || mtu != 0 && n > mtu
	case PayloadAny:
		bad = mtu != 0 && n > mtu
	case PayloadEight:
		bad = n != 8
	case PayloadCNP:
		bad = n != 16
	}
	switch {
	case bad && mtu == 0:
		fs.add(FaultPayload, "%v with %d bytes", p.Opcode(), n)
	case bad:
		fs.add(FaultPayload, "%v with %d bytes, path MTU %d", p.Opcode(), n, mtu)
	}
}

// checkExtensions checks the extension headers, and the contents of a CNP.
func (fs *faults) checkExtensions(p Packet) {
	reserved := uint32(0)
	if h := p.DETH; h != nil {
		reserved |= uint32(*h.Resv)
	}
	if h := p.XRCETH; h != nil {
		reserved |= uint32(*h.Resv)
	}
	if h := p.FETH; h != nil {
		reserved |= *h.Resv
	}
	if reserved != 0 {
		fs.add(FaultReserved, "%#x in an extension header", reserved)
	}
	if h := p.AETH; h != nil {
		kind, code := *h.Kind, *h.Value
		if kind == AckReserved || kind > AckNegative || kind == AckNegative && code > uint8(NakInvalidRD) {
			fs.add(FaultSyndrome, "%#02x", h.Syndrome())
		}
	}
	if h := p.AtomicETH; h != nil && p.Opcode().Operation() == OpFetchAdd && *h.Compare != 0 {
		fs.add(FaultFetchAdd, "%#x", *h.Compare)
	}
	if p.Opcode() == OpCNP && (p.PSN() != 0 || !allZero(p.Payload)) {
		fs.add(FaultCNPContent, "PSN %d, %x", p.PSN(), p.Payload)
	}
}

func allZero(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }
