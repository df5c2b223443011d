package judge_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/conformance"
	dgsuite "github.com/fabrictest/fabrictest/conformance/dgiwarp"
	iwarpsuite "github.com/fabrictest/fabrictest/conformance/iwarp"
	"github.com/fabrictest/fabrictest/conformance/packet"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
)

// described is an event, and a part of its description.
type described struct {
	event conformance.Event
	want  string
}

func (d *described) check(t *testing.T, s *conformance.Suite) {
	t.Helper()
	if got := s.DescribeEvent(&d.event); !strings.Contains(got, d.want) {
		t.Errorf("%q, want %q", got, d.want)
	}
}

func TestIWARPEventsAreDescribed(t *testing.T) {
	plain, marked := iwarp.Framer{CRC: true}, iwarp.Framer{CRC: true, Markers: true, Position: 480}
	request := iwarp.Request().Depths(16, 16).Append(nil)
	received := func(octets []byte) conformance.Event {
		return conformance.Event{Kind: conformance.EventReceived, Stream: 1, Data: octets}
	}
	for _, d := range []described{
		{conformance.Event{Kind: conformance.EventNote, Text: "a note"}, "a note"},
		{conformance.Event{Kind: conformance.EventReceivedFIN, Stream: 1}, "FIN"},
		{conformance.Event{Kind: conformance.EventReset, Stream: 2}, "(stream 2) RST"},
		{conformance.Event{Kind: conformance.EventSent, Stream: 1, Data: request}, "MPA REQUEST rev 2 C S ird 16"},
		{conformance.Event{Kind: conformance.EventSent, Stream: 1, Data: request[:19]}, "19 octets of a start-up frame"},
		{received(plain.Append(plain.Append(nil, iwarp.Send(1, make([]byte, 5))), iwarp.Send(2, nil))), "SEND msn 1 5 B last | SEND msn 2 0 B last"},
		{received(plain.Append(nil, iwarp.Send(3, nil).BadCRC())), "wrong"},
		{received(marked.Append(nil, iwarp.Send(1, make([]byte, 100)))), "SEND msn 1 100 B last (with markers)"},
		{received([]byte("no frame at all")), "15 octets: 6e 6f"},
	} {
		d.check(t, iwarpsuite.Suite())
	}
}

func TestDatagramEventsAreDescribed(t *testing.T) {
	good := iwarp.UD(iwarp.Send(3, []byte("hello")))
	version2 := good.EditHeader(func(h *iwarp.PacketHeader) { h.Version = new(uint8(2)) })
	received := func(packet []byte) conformance.Event {
		return conformance.Event{Kind: conformance.EventReceived, Data: packet}
	}
	for _, d := range []described{
		{conformance.Event{Kind: conformance.EventNote, Text: "a note"}, "a note"},
		{conformance.Event{Kind: conformance.EventSent, Data: inIP(good.Append(nil), packet.ProtocolUDP)}, "UD SEND msn 3 5 B last"},
		{received(inIP(version2.Append(nil), packet.ProtocolUDP)), "UD version 2 SEND msn 3 5 B last (version 2)"},
		{received(inIP(good.Append(nil), packet.ProtocolTCP)), "no UDP datagram"},
		{received(inIP(good.Append(nil), packet.ProtocolUDP)[:44]), "no UDP datagram"},
		{received(nil), "no UDP datagram"},
	} {
		d.check(t, dgsuite.Suite())
	}
}

// inIP returns an IP packet with octets in a UDP datagram, and this protocol in the IP header.
func inIP(octets []byte, protocol uint8) []byte {
	ip := packet.IP{Src: netip.MustParseAddr("fd00::1"), Dst: netip.MustParseAddr("fd00::2"), Protocol: &protocol}
	udp := packet.UDP{SrcPort: new(uint16(65041)), DstPort: new(uint16(52049))}
	return ip.Append(nil, udp.Append(nil, ip, octets))
}

func TestDatagramCasesHaveServiceAndRows(t *testing.T) {
	for _, c := range dgsuite.Suite().Cases {
		if len(c.Labels) > 1 && (len(c.Labels) > 2 || c.Labels[1] != conformance.Slow) {
			t.Errorf("%s has the labels %v", c.ID, c.Labels)
		}
		for _, r := range c.Cite.Rows {
			if !strings.HasPrefix(r, "dg/") && !(strings.HasPrefix(c.ID, "counters/") && strings.HasPrefix(r, "verbs/counters/")) {
				t.Errorf("%s cites %s", c.ID, r)
			}
		}
	}
}
