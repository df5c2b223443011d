package capture

import (
	"bytes"
	"encoding/hex"
	"io"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/layers"

	iwarp "github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/internal/must"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b := must.Get(hex.DecodeString(strings.ReplaceAll(s, " ", "")))(t)
	return b
}

func TestLinkHeadersAreDecoded(t *testing.T) {
	ip := roce(request(4, 100, 5)).data
	const macs = "525400770011 525400770012"
	for _, tc := range []struct {
		name   string
		link   LinkType
		header string
		vlans  int
	}{
		{"Ethernet", LinkEthernet, macs + "86dd", 0},
		{"VLAN", LinkEthernet, macs + "8100 0064 86dd", 1},
		{"VLAN in VLAN", LinkEthernet, macs + "88a8 0001 8100 0064 86dd", 2},
		{"raw", LinkRaw, "", 0},
		{"raw on BSD", LinkRawBSD, "", 0},
		{"raw IPv6", LinkIPv6, "", 0},
		{"cooked", LinkSLL, "0000 0001 0006 525400770012 0000 86dd", 0},
		{"cooked, version 2", LinkSLL2, "86dd 0000 00000001 0001 00 06 5254007700120000", 0},
		{"loopback", LinkNull, "1e000000", 0},
	} {
		data := append(unhex(t, tc.header), ip...)
		n := 0
		err := forEachPacket(t, bytes.NewReader(pcapOf(t, layers.LinkType(tc.link), frame{data: data})), func(_ *Stream, p *Packet) {
			n++
			if len(p.PDUs) != 1 || p.PDUs[0].(*RoCE).ICRC != ChecksumGood || len(p.Link.VLANs) != tc.vlans {
				t.Errorf("%s: %s %s, %+v", tc.name, p.Protocol, p.Note, p.Link)
			}
		})
		if err != nil || n != 1 {
			t.Errorf("%s: %d packets, %v", tc.name, n, err)
		}
		for n := range len(data) { // truncation must not panic
			_ = forEachPacket(t, bytes.NewReader(pcapOf(t, layers.LinkType(tc.link), frame{data: data[:n]})), func(_ *Stream, p *Packet) { p.Headers() })
		}
	}
}

func TestOtherProtocolsAreSummarised(t *testing.T) {
	const macs = "ffffffffffff 525400770012"
	ip6 := func(next, payload string) string {
		return macs + "86dd 60000000 00" + hex.EncodeToString([]byte{byte(len(strings.ReplaceAll(payload, " ", "")) / 2)}) + next + "ff" +
			"fe80000000000000 0000000000000001 fe80000000000000 0000000000000002" + payload
	}
	for _, tc := range []struct{ bytes, protocol, note string }{
		{macs + "0806 0001 0800 0604 0001 525400770012 0a4d000c 000000000000 0a4d000b", "ARP", "who has 10.77.0.11? tell 10.77.0.12"},
		{macs + "0806 0001 0800 0604 0002 525400770011 0a4d000b 525400770012 0a4d000c", "ARP", "10.77.0.11 is at 52:54:00:77:00:11"},
		{macs + "88cc 0207", "LLDP", "2 bytes"},
		{macs + "8915 00", "RoCEv1", "1 bytes; only version 2 is decoded"},
		{macs + "1234 00", "-", "Ethernet type 0x1234, 1 bytes"},
		{ip6("3a", "87000000 00000000 fe80000000000000 0000000000000003"), "ICMPv6", "who has fe80::3?"},
		{ip6("3a", "88000000 00000000 fe80000000000000 0000000000000003"), "ICMPv6", "fe80::3 is here"},
		{ip6("3a", "02000000 00000500"), "ICMPv6", "too big for the path: at most 1280 bytes"},
		{ip6("11", "0044 0043 0008 0000"), "UDP", "0 bytes (DHCP)"},
		{ip6("06", "9c40 1c06 00000001 00000002 5012 0010 0000 0000"), "TCP", "SYN ACK seq 1 ack 2"},
		{ip6("2c", "11000009 00000001 0000"), "IP", "fragment at 8 of a packet of protocol 17, 2 bytes"},
	} {
		_ = forEachPacket(t, bytes.NewReader(pcapOf(t, layers.LinkTypeEthernet, frame{data: unhex(t, tc.bytes)})), func(_ *Stream, p *Packet) {
			if p.Protocol != tc.protocol || p.Note != tc.note || len(p.PDUs) != 0 {
				t.Errorf("%s %q, want %s %q", p.Protocol, p.Note, tc.protocol, tc.note)
			}
		})
	}
}

// A segment 2^31 octets away counts as retransmitted. FuzzPackets found that it was
// trimmed at a negative offset.
func TestSegmentHalfSequenceSpaceAwayIsRetransmission(t *testing.T) {
	var s Stream
	h, back := &tcpDirection{started: true, next: 5}, new(tcpDirection)
	s.handleSegment(h, back, segment{seq: 5 + 1<<31, data: []byte("data")})
	if len(s.p.Marks) != 1 || s.p.Marks[0].Kind != MarkRetransmission || h.next != 5 || len(h.outOfOrder) != 0 {
		t.Errorf("marks %v, next %d, %d held", s.p.Marks, h.next, len(h.outOfOrder))
	}
}

// readAll reads a capture to its end, formats all headers and summaries, and returns
// the number of packets.
func readAll(t *testing.T, file []byte) int {
	s, err := Open(bytes.NewReader(file))
	if err != nil {
		return 0
	}
	n := 0
	for {
		p, err := s.Next()
		if err != nil {
			if err != io.EOF && err.Error() == "" {
				t.Fatal("an error without a text")
			}
			if _, again := s.Next(); again != err {
				t.Fatalf("after %v: %v", err, again)
			}
			break
		}
		if n++; p.Number != n || p.Protocol == "" {
			t.Fatalf("packet %d is number %d of protocol %q", n, p.Number, p.Protocol)
		}
		if p.Truncated() < 0 {
			t.Fatalf("packet %d: %d of %d bytes", n, len(p.Data), p.Length)
		}
		p.Headers()
		for _, d := range p.PDUs {
			if d.Op() == "" || d.PayloadLen() < 0 {
				t.Fatalf("packet %d: op %q, payload of %d", n, d.Op(), d.PayloadLen())
			}
			_ = d.Summary()
			if r, ok := d.(*RoCE); ok {
				r.aliases()
			}
		}
		if s.outOfOrderLen < 0 || s.outOfOrderLen > maxOutOfOrderTotal+maxPacketLen {
			t.Fatalf("packet %d: %d octets are held", n, s.outOfOrderLen)
		}
	}
	return n
}

func FuzzFile(f *testing.F) {
	f.Add(pcapngOf(f))
	f.Add(bigEndian())
	f.Add(pcapOf(f, layers.LinkTypeRaw, roce(request(4, 1, 10)), roce(request(4, 2, 11))))
	f.Fuzz(func(t *testing.T, b []byte) { readAll(t, b) })
}

func FuzzPackets(f *testing.F) {
	for _, framing := range []iwarp.Framing{{}, {CRC: true, Markers: true}} {
		frames, _ := connection(framing, []int{1, 100, 700}, 300)
		var b []byte
		for _, one := range frames {
			b = append(b, byte(len(one.data)>>8), byte(len(one.data)))
			b = append(b, one.data...)
		}
		f.Add(uint16(LinkRaw), uint16(0), b)
		f.Add(uint16(LinkRaw), uint16(90), b)
	}
	one := roce(request(4, 1, 10)).data
	f.Add(uint16(LinkEthernet), uint16(0), append([]byte{0, byte(len(one))}, one...))
	// Packets with a 2-octet length prefix each.
	f.Fuzz(func(t *testing.T, link, snap uint16, b []byte) {
		var frames []frame
		for len(b) >= 2 && len(frames) < 200 {
			n := min(int(b[0])<<8|int(b[1]), len(b)-2)
			data := b[2 : 2+n]
			b = b[2+n:]
			one := frame{data: data, length: len(data)}
			if snap > 0 {
				one.data = data[:min(len(data), int(snap))]
			}
			frames = append(frames, one)
		}
		if n := readAll(t, pcapOf(t, layers.LinkType(link), frames...)); n != len(frames) {
			t.Fatalf("%d of %d packets", n, len(frames))
		}
	})
}
