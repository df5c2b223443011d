package capture

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/layers"

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
			if len(p.PDUs) != 1 || p.PDUs[0].RoCE.ICRC != ChecksumGood || len(p.Link.VLANs) != tc.vlans {
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

func TestOtherProtocolsGetANote(t *testing.T) {
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
