package wire

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/fabrictest/fabrictest/conformance/packet"
)

// The packet of a parsed datagram equals the parsed packet.
func FuzzDatagram(f *testing.F) {
	cfg := UDPConfig{
		Addrs:  []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")},
		Device: []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::2")},
	}
	for i := range cfg.Addrs {
		ip := packet.IP{Src: cfg.Addrs[i], Dst: cfg.Device[i]}
		for _, udp := range []packet.UDP{{SrcPort: new(uint16(7)), DstPort: new(uint16(4791))}, {SrcPort: new(uint16(7)), DstPort: new(uint16(9)), Checksum: new(uint16(0))}} {
			f.Add(ip.Append(nil, udp.Append(nil, ip, []byte("hello"))))
		}
	}
	f.Add([]byte{0x45})
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := cfg.datagram(b)
		if err != nil {
			return
		}
		if rebuilt := d.packet(); !bytes.Equal(rebuilt, b) {
			t.Errorf("%x is sent as %x", b, rebuilt)
		}
	})
}
