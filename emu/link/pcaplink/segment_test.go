package pcaplink

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
)

// gopacket, which computes lengths and checksums itself, encodes the same bytes.
func TestSegmentsMatchGopacket(t *testing.T) {
	for _, pair := range [][2]string{{"10.0.0.1:50000", "10.0.0.2:7"}, {"[fd00::1]:50000", "[fd00::2]:7"}} {
		for _, n := range []int{0, 1, 2, 3, 100, 8947, 65000} {
			s := link.Segment{
				Src: netip.MustParseAddrPort(pair[0]), Dst: netip.MustParseAddrPort(pair[1]),
				Seq: 1 << 33, Ack: 17, Flags: link.ACK | link.PSH, Payload: text(n),
			}
			got := RawIP.appendSegment(nil, &s)
			tcp := &layers.TCP{
				SrcPort: 50000, DstPort: 7, PSH: true, ACK: true, Window: tcpWindow,
				Seq: initialSeq(s.Src, s.Dst), Ack: initialSeq(s.Dst, s.Src) + 17,
			}
			src, dst := s.Src.Addr().AsSlice(), s.Dst.Addr().AsSlice()
			var ip gopacket.SerializableLayer
			if s.Is4() {
				v4 := &layers.IPv4{Version: 4, IHL: 5, TTL: 64, Flags: layers.IPv4DontFragment, Protocol: layers.IPProtocolTCP, SrcIP: src, DstIP: dst}
				_ = tcp.SetNetworkLayerForChecksum(v4)
				ip = v4
			} else {
				v6 := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolTCP, SrcIP: src, DstIP: dst}
				_ = tcp.SetNetworkLayerForChecksum(v6)
				ip = v6
			}
			want := gopacket.NewSerializeBuffer()
			must.Do(t, gopacket.SerializeLayers(want, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ip, tcp, gopacket.Payload(s.Payload)))
			if !bytes.Equal(got, want.Bytes()) {
				k := min(len(got), 80)
				t.Errorf("%v, %d bytes: got\n% x\nwant\n% x", s.Src, n, got[:k], want.Bytes()[:k])
			}
		}
	}
}

func TestSegmentTooLongForIPIsAnError(t *testing.T) {
	c := NewCapture(&bytes.Buffer{}, Options{})
	c.AddInterface("a").WriteSegment(1, Outbound, &link.Segment{
		Src: netip.MustParseAddrPort("[::1]:1"), Dst: netip.MustParseAddrPort("[::1]:2"), Payload: make([]byte, 1<<16),
	})
	if err := c.Close(); err == nil || fmt.Sprint(err) != "capture, after 0 packets: a segment of 65536 bytes does not fit in an IP packet" {
		t.Errorf("Close = %v", err)
	}
}
