package link

import (
	"encoding/binary"
	"net/netip"
	"testing"
)

func TestHeadersReadBackWithoutAllocation(t *testing.T) {
	buf := make([]byte, 0, 128)
	for _, addrs := range [][2]string{{"10.0.0.1:49152", "10.0.0.2:4791"}, {"[fd00::1]:49152", "[fd00::2]:4791"}} {
		d := Datagram{
			Src: netip.MustParseAddrPort(addrs[0]), Dst: netip.MustParseAddrPort(addrs[1]),
			TClass: 0x2e, HopLimit: 9, Payload: []byte("seven b"),
		}
		if d.Is4() {
			d.IPID = 0x1234
		} else {
			d.FlowLabel = 0x54321
		}
		var got Datagram
		if n := testing.AllocsPerRun(10, func() { buf = AppendUDP(buf[:0], &d); ReadIP(buf, &got) }); n != 0 {
			t.Errorf("%v: %v allocations", d.Dst, n)
		}
		if got.Src.Addr() != d.Src.Addr() || got.Dst.Addr() != d.Dst.Addr() || got.TClass != d.TClass ||
			got.HopLimit != d.HopLimit || got.IPID != d.IPID || got.FlowLabel != d.FlowLabel {
			t.Errorf("%+v, want %+v", got, d)
		}
		udp := buf[d.IPBytes()-UDPHeaderLen-len(d.Payload):]
		sum := FoldSum(SumWords(PseudoHeaderSum(d.Src.Addr(), d.Dst.Addr(), ProtocolUDP, len(udp)), udp))
		if sum != 0xffff || binary.BigEndian.Uint16(udp[4:]) != uint16(len(udp)) {
			t.Errorf("%v: a datagram with its checksum sums to %#x; %x", d.Dst, sum, udp)
		}
	}
}
