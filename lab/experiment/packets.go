package experiment

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"

	dgiwarp "github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	iwarp "github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
	roce "github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// datagramName returns the type of a packet with this UDP payload, which a NIC of the provider
// sent: its RoCE opcode, or the kind, the Ack flag and the message of a datagram-iWARP packet.
func datagramName(provider string, payload []byte) string {
	if provider != "dgiwarp" {
		return roce.Opcode(payload[0]).String()
	}
	var p dgiwarp.Packet
	if p.Parse(payload) != nil {
		return "unknown"
	}
	name := p.Kind.String()
	if p.Flags.Has(dgiwarp.FlagAck) {
		name += " Ack"
	}
	if len(p.ULPDU) > 0 {
		name += " " + ddpName(p.ULPDU)
	}
	return name
}

// ddpName returns the name of the message that a DDP segment belongs to.
func ddpName(segment []byte) string {
	var c iwarp.Control
	if _, err := c.Parse(segment); err != nil {
		return "unknown"
	}
	return c.Opcode.String()
}

// segmentNames describes TCP segments by the FPDUs that end in them, so that the packets of two
// simulations can be compared. It has a deframer for each direction of a connection.
type segmentNames map[[2]netip.AddrPort]*iwarp.Deframer

// of describes a segment by the DDP messages whose FPDUs end in it. It must be called with all
// segments of a connection, in order.
func (n segmentNames) of(s *link.Segment) string {
	switch {
	case len(s.Payload) == 0:
		return "TCP without data"
	case bytes.HasPrefix(s.Payload, []byte("MPA ID ")):
		return "MPA start frame"
	}
	stream := [2]netip.AddrPort{s.Src, s.Dst}
	d := n[stream]
	if d == nil {
		d = iwarp.NewDeframer(iwarp.Framing{CRC: true})
		n[stream] = d
	}
	var names []string
	for f, rest, ok := d.Next(s.Payload); ok; f, rest, ok = d.Next(rest) {
		if name := ddpName(f.ULPDU); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if names == nil {
		return "TCP without the end of an FPDU"
	}
	return "TCP " + strings.Join(names, ", ")
}
