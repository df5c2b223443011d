package dgiwarp

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
)

func TestSuiteIsWellFormed(t *testing.T) {
	s := Suite()
	for _, err := range s.Check() {
		t.Error(err)
	}
	for _, c := range s.Cases {
		if len(c.Labels) > 1 && !slices.Equal(c.Labels[1:], []string{conformance.Slow}) {
			t.Errorf("%s has the labels %v", c.ID, c.Labels)
		}
		for _, r := range c.Cite.Rows {
			if !strings.HasPrefix(r, "dg/") && !(strings.HasPrefix(c.ID, "counters/") && strings.HasPrefix(r, "verbs/counters/")) {
				t.Errorf("%s cites %s", c.ID, r)
			}
		}
	}
}

// frame is an IP packet with some octets for UDP.
func frame(octets []byte, protocol uint8) []byte {
	ip := packet.IP{Src: netip.MustParseAddr("fd00::1"), Dst: netip.MustParseAddr("fd00::2"), Protocol: &protocol}
	udp := packet.UDP{SrcPort: new(uint16(devicePort)), DstPort: new(uint16(peerPort))}
	return ip.Append(nil, udp.Append(nil, ip, octets))
}

func TestParseFrame(t *testing.T) {
	octets := iwarp.UD(iwarp.Send(3, []byte("hello"))).ToQP(7).Append(nil)
	b := frame(octets, packet.ProtocolUDP)
	a, ok := parseFrame(conformance.Frame{Packet: b, At: 5})
	if !ok || !bytes.Equal(a.Raw, octets) || *a.Header.DestQP != 7 || *a.UDP.DstPort != peerPort || a.At != 5 || a.size != len(b) {
		t.Errorf("read gives %v, %v", a, ok)
	}
	for name, b := range map[string][]byte{
		"empty":        nil,
		"half a frame": b[:44],
		"TCP":          frame(octets, packet.ProtocolTCP),
	} {
		if a, ok := parseFrame(conformance.Frame{Packet: b}); ok {
			t.Errorf("%s is read as %v", name, a)
		}
	}
}

func TestDescribeEvent(t *testing.T) {
	good := iwarp.UD(iwarp.Send(3, []byte("hello")))
	for _, test := range []struct {
		event conformance.Event
		want  string
	}{
		{conformance.Event{Kind: conformance.EventNote, Text: "a note"}, "a note"},
		{conformance.Event{Kind: conformance.EventSent, Data: frame(good.Append(nil), packet.ProtocolUDP)}, "UD SEND msn 3 5 B last"},
		{conformance.Event{Kind: conformance.EventReceived, Data: frame(good.EditHeader(func(h *iwarp.PacketHeader) { h.Version = new(uint8(2)) }).Append(nil), packet.ProtocolUDP)}, "UD version 2 SEND msn 3 5 B last (version 2)"},
		{conformance.Event{Kind: conformance.EventReceived, Data: frame(nil, packet.ProtocolTCP)}, "no UDP datagram"},
	} {
		if got := describeEvent(&test.event); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

func TestAppendCRC(t *testing.T) {
	want := iwarp.RDAck(1, 2).Append(nil)
	if got := appendCRC(bytes.Clone(want[:len(want)-crcLen])); !bytes.Equal(got, want) {
		t.Errorf("% x, want % x", got, want)
	}
}

func TestSendSegmentsOf(t *testing.T) {
	message := data(100)
	var joined []byte
	all := sendSegmentsOf(9, message, 40)
	for i, s := range all {
		s = iwarp.ParseSegment(s.Append(nil))
		if *s.DDP.MO != uint32(len(joined)) || *s.DDP.Last != (i == len(all)-1) || *s.DDP.MSN != 9 {
			t.Errorf("piece %d is %v", i, s)
		}
		joined = append(joined, s.Payload...)
	}
	if len(all) != 3 || !bytes.Equal(joined, message) {
		t.Errorf("%d pieces of %d octets", len(all), len(joined))
	}
}
