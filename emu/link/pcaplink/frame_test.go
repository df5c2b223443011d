package pcaplink

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
)

func datagram(src, dst string, payload string) link.Datagram {
	return link.Datagram{
		Src: netip.MustParseAddrPort(src), Dst: netip.MustParseAddrPort(dst),
		TClass: 0x6a, HopLimit: 17, IPID: 0xbeef, FlowLabel: 0x12345,
		Payload: []byte(payload),
	}
}

func unhex(s string) []byte {
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		panic(err)
	}
	return b
}

func TestFrameGolden(t *testing.T) {
	for _, tc := range []struct {
		name    string
		framing Framing
		change  func(*link.Datagram)
		src     string
		dst     string
		want    string
	}{
		{
			name: "IPv4", src: "10.0.0.1:49441", dst: "10.0.0.2:4791",
			// Header checksum: the 16-bit words sum to 0x1698d, folded 0x698e.
			want: `45 6a 00 20 be ef 40 00 11 11 96 71 0a 00 00 01 0a 00 00 02
			       c1 21 12 b7 00 0c 42 26 72 6f 63 65`,
		},
		{
			name: "IPv4 without a checksum", src: "10.0.0.1:49441", dst: "10.0.0.2:4791",
			change: func(d *link.Datagram) { d.Variants = link.NoChecksum },
			want: `45 6a 00 20 be ef 40 00 11 11 96 71 0a 00 00 01 0a 00 00 02
			       c1 21 12 b7 00 0c 00 00 72 6f 63 65`,
		},
		{
			name: "IPv4 left to the link", src: "10.0.0.1:49441", dst: "10.0.0.2:4791",
			change: func(d *link.Datagram) { d.IPID, d.HopLimit, d.TClass = link.IPIDUnknown, 0, 0 },
			want: `45 00 00 20 00 00 40 00 40 11 26 cb 0a 00 00 01 0a 00 00 02
			       c1 21 12 b7 00 0c 42 26 72 6f 63 65`,
		},
		{
			name: "IPv4 mapped", src: "[::ffff:10.0.0.1]:49441", dst: "[::ffff:10.0.0.2]:4791",
			want: `45 6a 00 20 be ef 40 00 11 11 96 71 0a 00 00 01 0a 00 00 02
			       c1 21 12 b7 00 0c 42 26 72 6f 63 65`,
		},
		{
			name: "IPv6", src: "[fd00::1]:49441", dst: "[fd00::2]:4791",
			change: func(d *link.Datagram) { d.Variants = link.NoChecksum }, // illegal for IPv6
			want: `66 a1 23 45 00 0c 11 11
			       fd 00 00 00 00 00 00 00 00 00 00 00 00 00 00 01
			       fd 00 00 00 00 00 00 00 00 00 00 00 00 00 00 02
			       c1 21 12 b7 00 0c 5c 24 72 6f 63 65`,
		},
		{
			name: "Ethernet, IPv4 multicast", framing: Ethernet, src: "10.0.0.1:49441", dst: "239.129.2.3:4791",
			want: `01 00 5e 01 02 03  02 00 0a 00 00 01  08 00
			       45 6a 00 20 be ef 40 00 11 11 ae ee 0a 00 00 01 ef 81 02 03
			       c1 21 12 b7 00 0c 5a a3 72 6f 63 65`,
		},
		{
			name: "Ethernet, IPv6", framing: Ethernet, src: "[fd00::1]:49441", dst: "[ff0e::2]:4791",
			want: `33 33 00 00 00 02  02 00 00 00 00 01  86 dd
			       66 a1 23 45 00 0c 11 11
			       fd 00 00 00 00 00 00 00 00 00 00 00 00 00 00 01
			       ff 0e 00 00 00 00 00 00 00 00 00 00 00 00 00 02
			       c1 21 12 b7 00 0c 5a 16 72 6f 63 65`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := datagram(tc.src, tc.dst, "roce")
			if tc.change != nil {
				tc.change(&d)
			}
			got := tc.framing.appendFrame(nil, &d)
			if want := unhex(tc.want); !bytes.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s", hex.Dump(got), hex.Dump(want))
			}
		})
	}
}

// gopacket checks the header checksum and the lengths.
func TestFrameDecodesWithGopacket(t *testing.T) {
	for n := range 200 {
		d := datagram("10.1.2.3:49441", "10.255.254.253:4791", strings.Repeat("\xff", n))
		d.IPID = uint32(n) * 331 % (1 << 16)
		flags := layers.IPv4DontFragment
		if n%2 == 1 {
			d.Variants, flags = link.MayFragment, 0
		}
		p := gopacket.NewPacket(RawIP.appendFrame(nil, &d), layers.LayerTypeIPv4, gopacket.Default)
		ip, udp := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4), p.Layer(layers.LayerTypeUDP).(*layers.UDP)
		if uint32(ip.Id) != d.IPID || ip.Flags != flags || ip.TTL != 17 || ip.TOS != 0x6a {
			t.Fatalf("%d bytes: IPv4 header %+v", n, ip)
		}
		if link.Checksum(ip.Contents) != 0 {
			t.Fatalf("%d bytes: a right header sums to 0, not %#x", n, link.Checksum(ip.Contents))
		}
		if sum := link.FoldSum(link.SumWords(link.PseudoHeaderSum(d.Src.Addr(), d.Dst.Addr(), link.ProtocolUDP, 8+n), ip.Payload)); sum != 0xffff || udp.Checksum == 0 {
			t.Fatalf("%d bytes: a right datagram sums to 0, not %#x; checksum %#x", n, sum, udp.Checksum)
		}
		if int(ip.Length) != 28+n || int(udp.Length) != 8+n || udp.DstPort != 4791 {
			t.Fatalf("%d bytes: IP length %d, UDP %+v", n, ip.Length, udp)
		}
	}
}

func TestFrameWithoutSourceAddress(t *testing.T) {
	d := datagram("10.0.0.1:1", "10.0.0.2:4791", "x")
	d.Src = netip.AddrPort{}
	if got := RawIP.appendFrame(nil, &d); !bytes.Equal(got[12:16], make([]byte, 4)) {
		t.Errorf("source % x, want unspecified", got[12:16])
	}
	d.Dst = netip.MustParseAddrPort("[fd00::1]:4791")
	if got := RawIP.appendFrame(nil, &d); !bytes.Equal(got[8:24], make([]byte, 16)) {
		t.Errorf("source % x, want unspecified", got[8:24])
	}
}

func TestFrameDoesNotAllocate(t *testing.T) {
	d := datagram("10.0.0.1:1", "10.0.0.2:4791", "x")
	buf := make([]byte, 0, 2000)
	if n := testing.AllocsPerRun(100, func() { buf = Ethernet.appendFrame(buf[:0], &d) }); n != 0 {
		t.Errorf("appendFrame allocates %v times", n)
	}
}

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
