package wire

import (
	"bytes"
	"net"
	"net/netip"
	"testing"

	"github.com/fabrictest/fabrictest/conformance/packet"
)

func testStation(t *testing.T) station {
	t.Helper()
	s, err := newStation(&EthernetConfig{
		MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, Device: net.HardwareAddr{2, 0, 0, 0, 0, 2},
		Addrs: []netip.Addr{netip.MustParseAddr("fd00::1"), netip.MustParseAddr("10.0.0.1")},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestFrameDestinationAndEtherType(t *testing.T) {
	t.Parallel()
	s := testStation(t)
	for _, c := range []struct {
		dst  string // "" for a truncated packet
		bits byte   // the first byte
		to   packet.MAC
		kind uint16
	}{
		{"10.9.9.9", 0x45, s.device, packet.EtherTypeIPv4},
		{"239.129.2.3", 0x45, packet.MAC{1, 0, 0x5e, 1, 2, 3}, packet.EtherTypeIPv4},
		{"255.255.255.255", 0x45, packet.Broadcast, packet.EtherTypeIPv4},
		{"fd99::1", 0x60, s.device, packet.EtherTypeIPv6},
		{"ff15::102:304", 0x60, packet.MAC{0x33, 0x33, 1, 2, 3, 4}, packet.EtherTypeIPv6},
		{"fd99::1", 0x50, s.device, packet.EtherTypeIPv6}, // invalid version: the wire's own
		{"", 0x45, s.device, packet.EtherTypeIPv4},
	} {
		ip := []byte{c.bits}
		if c.dst != "" {
			a := netip.MustParseAddr(c.dst)
			ip = append(make([]byte, 24), a.AsSlice()...)
			if a.Is4() {
				ip = append(make([]byte, 16), a.AsSlice()...)
			}
			ip[0] = c.bits
		}
		h, payload, err := packet.ParseEthernet(s.ethernetFrame(ip))
		if err != nil || h.Dst != c.to || h.Src != s.mac || h.Type != c.kind || !bytes.HasPrefix(payload, ip) {
			t.Errorf("%s: %+v, %x, %v", c.dst, h, payload, err)
		}
	}
}

func TestAnswersARPAndNeighborSolicitations(t *testing.T) {
	t.Parallel()
	s := testStation(t)
	requester := packet.MAC{2, 0, 0, 0, 0, 2}
	arp := func(a packet.ARP) []byte {
		return packet.Ethernet{Dst: packet.Broadcast, Src: requester, Type: packet.EtherTypeARP}.Append(nil, a.Append(nil))
	}
	request := func(sender, target string) packet.ARP {
		return packet.ARP{Op: packet.ARPRequest, SenderMAC: requester, Sender: netip.MustParseAddr(sender), Target: netip.MustParseAddr(target)}
	}
	nd := func(src, target string) []byte {
		to := netip.MustParseAddr(target)
		n := packet.Neighbor{Type: packet.NeighborSolicitation, Target: to, MAC: requester}
		return packet.Ethernet{Src: requester, Type: packet.EtherTypeIPv6}.Append(nil, n.Append(nil, netip.MustParseAddr(src), netip.IPv6LinkLocalAllNodes()))
	}
	reply := request("10.0.0.2", "10.0.0.1")
	reply.Op = packet.ARPReply
	for name, c := range map[string]struct {
		frame    []byte
		answered bool
	}{
		"our address":             {arp(request("10.0.0.2", "10.0.0.1")), true},
		"other address":           {arp(request("10.0.0.2", "10.0.0.3")), false},
		"a probe":                 {arp(request("0.0.0.0", "10.0.0.1")), false},
		"an announcement":         {arp(request("10.0.0.1", "10.0.0.1")), false},
		"a reply":                 {arp(reply), false},
		"our address over IPv6":   {nd("fd00::2", "fd00::1"), true},
		"other address over IPv6": {nd("fd00::2", "fd00::3"), false},
		"a probe over IPv6":       {nd("::", "fd00::1"), false},
		"truncated over IPv6":     {nd("fd00::2", "fd00::1")[:50], false},
	} {
		ip, answer := s.handleFrame(c.frame)
		if ip != nil || (answer != nil) != c.answered {
			t.Errorf("%s: kept %x, answered %x", name, ip, answer)
		}
		if h, _, err := packet.ParseEthernet(answer); c.answered && (err != nil || h.Dst != requester || h.Src != s.mac) {
			t.Errorf("%s: answered to %v from %v", name, h.Dst, h.Src)
		}
	}
}

func TestHandleFrameAcceptsUDPOfDevice(t *testing.T) {
	t.Parallel()
	s := testStation(t)
	v4, v6 := append([]byte{0x45}, make([]byte, 27)...), append([]byte{0x60}, make([]byte, 47)...)
	with := func(b []byte, at int, v byte) []byte {
		b = bytes.Clone(b)
		b[at] = v
		return b
	}
	fragment := with(with(v6, 6, 44), 40, 17)
	for name, c := range map[string]struct {
		src  packet.MAC
		kind uint16
		ip   []byte
		kept bool
	}{
		"UDP":           {s.device, packet.EtherTypeIPv4, with(v4, 9, 17), true},
		"UDP over IPv6": {s.device, packet.EtherTypeIPv6, with(v6, 6, 17), true},
		"a fragment":    {s.device, packet.EtherTypeIPv6, fragment, true},
		"ICMP":          {s.device, packet.EtherTypeIPv4, with(v4, 9, 1), false},
		"MLD":           {s.device, packet.EtherTypeIPv6, with(v6, 6, 0), false},
		"our own MAC":   {s.mac, packet.EtherTypeIPv4, with(v4, 9, 17), false},
		"LLDP":          {s.device, 0x88cc, with(v4, 9, 17), false},
	} {
		ip, _ := s.handleFrame(packet.Ethernet{Src: c.src, Type: c.kind}.Append(nil, c.ip))
		if (ip != nil) != c.kept || c.kept && !bytes.HasPrefix(ip, c.ip) {
			t.Errorf("%s: kept %x", name, ip)
		}
	}
}
