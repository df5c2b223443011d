package ethernet

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/netns/uswitch"
)

var (
	macA = net.HardwareAddr{2, 0, 0, 0, 0, 0xa}
	macB = net.HardwareAddr{2, 0, 0, 0, 0, 0xb}
)

var (
	v4A, v4B = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	v6A, v6B = netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")
)

func datagram(v6 bool, payload []byte) link.Datagram {
	d := link.Datagram{
		Src: netip.AddrPortFrom(v4A, 50000), Dst: netip.AddrPortFrom(v4B, 4791),
		TClass: 0xa0 | link.ECT0, HopLimit: 63, IPID: 7, Payload: payload,
	}
	if v6 {
		d.Src, d.Dst = netip.AddrPortFrom(v6A, 50000), netip.AddrPortFrom(v6B, 4791)
		d.IPID, d.FlowLabel = 0, 0x12345
	}
	return d
}

// frameOf builds the frame of d with gopacket, independently of this package.
func frameOf(tb testing.TB, d link.Datagram) []byte {
	tb.Helper()
	return build(tb, d, &layers.UDP{SrcPort: layers.UDPPort(d.Src.Port()), DstPort: layers.UDPPort(d.Dst.Port())})
}

// build returns a frame with a gopacket transport header before the payload.
func build(tb testing.TB, d link.Datagram, transport gopacket.SerializableLayer) []byte {
	tb.Helper()
	proto := map[gopacket.LayerType]layers.IPProtocol{
		layers.LayerTypeUDP: layers.IPProtocolUDP, layers.LayerTypeTCP: layers.IPProtocolTCP,
		layers.LayerTypeICMPv4: layers.IPProtocolICMPv4, layers.LayerTypeICMPv6: layers.IPProtocolICMPv6,
	}[transport.LayerType()]
	// Built here, because gopacket pads short frames.
	header := slices.Concat(macB, macA, []byte{0x08, 0x00})
	var network gopacket.NetworkLayer = &layers.IPv4{
		Version: 4, IHL: 5, TOS: d.TClass, TTL: d.HopLimit, Id: uint16(d.IPID), Flags: layers.IPv4DontFragment,
		Protocol: proto, SrcIP: d.Src.Addr().AsSlice(), DstIP: d.Dst.Addr().AsSlice(),
	}
	if !d.Is4() {
		header[12], header[13] = 0x86, 0xdd
		network = &layers.IPv6{
			Version: 6, TrafficClass: d.TClass, FlowLabel: d.FlowLabel, HopLimit: d.HopLimit,
			NextHeader: proto, SrcIP: d.Src.Addr().AsSlice(), DstIP: d.Dst.Addr().AsSlice(),
		}
	}
	if c, ok := transport.(interface {
		SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
	}); ok {
		must.Do(tb, c.SetNetworkLayerForChecksum(network))
	}
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	must.Do(tb, gopacket.SerializeLayers(buf, opts, network.(gopacket.SerializableLayer), transport, gopacket.Payload(d.Payload)))
	return append(header, buf.Bytes()...)
}

// partial replaces the checksum by the pseudo-header sum (CHECKSUM_PARTIAL).
func partial(tb testing.TB, b []byte) []byte {
	tb.Helper()
	var h headers
	at, ok := 0, h.parse(b)
	if ok {
		at, ok = h.checksumAt()
	}
	if !ok {
		tb.Fatal("no UDP or TCP")
	}
	b = bytes.Clone(b)
	sum := link.FoldSum(h.pseudoSum(b))
	b[at], b[at+1] = byte(sum>>8), byte(sum)
	return b
}

// verify checks the headers and checksums of a frame.
func verify(f uswitch.Frame) error {
	b := bytes.Clone(f.Bytes)
	var h headers
	if f.ChecksumPartial {
		if !h.parse(b) {
			return fmt.Errorf("partial, and neither UDP nor TCP: %x", b)
		}
		at, _ := h.checksumAt()
		if sum := link.FoldSum(h.pseudoSum(b)); b[at] != byte(sum>>8) || b[at+1] != byte(sum) {
			return fmt.Errorf("partial checksum %x, want %04x", b[at:at+2], sum)
		}
		b[at], b[at+1] = 0xff, 0xff
		h.setChecksum(b, false)
	}
	p := gopacket.NewPacket(b, layers.LayerTypeEthernet, gopacket.Default)
	if e := p.ErrorLayer(); e != nil && p.TransportLayer() == nil {
		return e.Error()
	}
	if c, ok := p.TransportLayer().(interface {
		SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
	}); ok {
		if err := c.SetNetworkLayerForChecksum(p.NetworkLayer()); err != nil {
			return err
		}
	}
	err, bad := p.VerifyChecksums()
	if err == nil && len(bad) > 0 {
		err = fmt.Errorf("checksum of %v: %+v", bad[0].Layer.LayerType(), bad[0].ChecksumVerificationResult)
	}
	return err
}

// emitted is a frame that a handler emitted.
type emitted struct {
	after time.Duration
	uswitch.Frame
}

// collect applies p to a frame and returns the emitted frames.
func collect(p uswitch.FrameHandler, now time.Duration, f uswitch.Frame) (out []emitted) {
	p.Apply(now, f, func(after time.Duration, g uswitch.Frame) {
		out = append(out, emitted{after, uswitch.Frame{Bytes: bytes.Clone(g.Bytes), ChecksumPartial: g.ChecksumPartial}})
	})
	return out
}

func newPath(tb testing.TB, cfg impair.Config, d impair.Dissector) *Impairer {
	tb.Helper()
	p := must.Get(NewImpairer(cfg, Options{Dissector: d, Source: impair.RandSources(1, "net/a/up")}))(tb)
	return p
}

func specPath(tb testing.TB, s impair.Spec) *Impairer {
	return newPath(tb, impair.Config{Specs: []impair.Spec{s}}, nil)
}

// read returns the datagram of a frame.
func read(tb testing.TB, b []byte) link.Datagram {
	tb.Helper()
	var h headers
	var d link.Datagram
	if !h.parse(b) || h.proto != link.ProtocolUDP {
		tb.Fatalf("no datagram in %x", b)
	}
	h.datagram(b, &d)
	return d
}

// segmentFrame returns a frame with a TCP segment and a valid checksum.
func segmentFrame(t *testing.T, v6 bool, seq uint32, syn bool, data []byte) []byte {
	t.Helper()
	tcp := &layers.TCP{SrcPort: 4000, DstPort: 5000, Seq: seq, SYN: syn, ACK: !syn, PSH: !syn, Window: 100}
	eth := &layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: make([]byte, 6), EthernetType: layers.EthernetTypeIPv4}
	var ip interface {
		gopacket.SerializableLayer
		gopacket.NetworkLayer
	}
	if v6 {
		eth.EthernetType = layers.EthernetTypeIPv6
		ip = &layers.IPv6{Version: 6, NextHeader: layers.IPProtocolTCP, HopLimit: 64, SrcIP: netip.MustParseAddr("fd00::1").AsSlice(), DstIP: netip.MustParseAddr("fd00::2").AsSlice()}
	} else {
		ip = &layers.IPv4{Version: 4, Protocol: layers.IPProtocolTCP, TTL: 64, SrcIP: []byte{10, 0, 0, 1}, DstIP: []byte{10, 0, 0, 2}}
	}
	must.Do(t, tcp.SetNetworkLayerForChecksum(ip))
	buf := gopacket.NewSerializeBuffer()
	must.Do(t, gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, eth, ip, tcp, gopacket.Payload(data)))
	return buf.Bytes()
}

// readSegment decodes the TCP segment of a frame and checks its checksum.
func readSegment(t *testing.T, frame []byte) *layers.TCP {
	t.Helper()
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.DecodeOptions{})
	tcp, ok := p.TransportLayer().(*layers.TCP)
	if !ok {
		t.Fatalf("no TCP in %v", p)
	}
	must.Do(t, tcp.SetNetworkLayerForChecksum(p.NetworkLayer()))
	if sum, err := tcp.ComputeChecksum(); err != nil || sum != 0 {
		t.Errorf("the checksum is off by %#x (%v)", sum, err)
	}
	return tcp
}

// Events apply once to the segment with their byte, and the checksum stays valid:
// across sequence number wrap, for both IP versions, and at odd offsets.
func TestStreamEventsApplyOnceAndKeepChecksums(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for _, isn := range []uint32{1000, 1<<32 - 50} {
			impairer := NewStreamImpairer([]lab.StreamEvent{
				{Offset: 3, Do: lab.StreamCorrupt, Bit: 7},
				{Offset: 8, Do: lab.StreamCorrupt, Bit: 0},
				{Offset: 10, Do: lab.StreamDrop},
				{Offset: 120, Do: lab.StreamDelay, Delay: time.Millisecond},
				{Offset: 130, Do: lab.StreamReset},
				{Offset: 132, Do: lab.StreamReset}, // in the same segment: it stays a reset
				{Offset: 3, Conn: 2, Do: lab.StreamReset},
			}, passThrough{})
			var out []byte
			var delay time.Duration
			apply := func(seq uint32, syn bool, data []byte) {
				out, delay = nil, 0
				frame := segmentFrame(t, v6, seq, syn, data)
				before := string(frame)
				impairer.Apply(0, uswitch.Frame{Bytes: frame}, func(after time.Duration, f uswitch.Frame) { out, delay = append([]byte(nil), f.Bytes...), after })
				if string(frame) != before {
					t.Error("the frame was changed in place")
				}
			}
			apply(isn-7, false, []byte("unknown"))
			if got := readSegment(t, out); string(got.Payload) != "unknown" {
				t.Errorf("a segment of an unknown stream: %q", got.Payload)
			}
			apply(isn, true, nil)
			readSegment(t, out)
			apply(isn+1, false, []byte("123456789"))
			if got := readSegment(t, out); string(got.Payload) != "123\xb45678\x38" {
				t.Errorf("%q", got.Payload)
			}
			apply(isn+10, false, []byte("01234"))
			if out != nil || impairer.Drops != 1 {
				t.Errorf("%d dropped", impairer.Drops)
			}
			apply(isn+10, false, []byte("01234"))
			if got := readSegment(t, out); string(got.Payload) != "01234" {
				t.Errorf("retransmitted: %q", got.Payload)
			}
			apply(isn+15, false, make([]byte, 100))
			apply(isn+115, false, make([]byte, 10))
			if readSegment(t, out); delay != time.Millisecond {
				t.Errorf("delayed by %v", delay)
			}
			apply(isn+125, false, make([]byte, 10))
			if got := readSegment(t, out); !got.RST || got.PSH || !got.ACK || delay != 0 {
				t.Errorf("%+v", got)
			}
			// More streams between the same ports: the second has another event.
			for conn := range 2 {
				isn += 5000
				apply(isn, true, nil)
				apply(isn+1, false, []byte("1234"))
				if got := readSegment(t, out); string(got.Payload) != "123\xb4" || got.RST != (conn == 0) {
					t.Errorf("stream %d: %q, reset %v", conn+2, got.Payload, got.RST)
				}
			}
		}
	}
}

func TestStreamImpairerKeepsPartialChecksums(t *testing.T) {
	impairer := NewStreamImpairer([]lab.StreamEvent{{Offset: 1, Do: lab.StreamCorrupt}}, passThrough{})
	impairer.Apply(0, uswitch.Frame{Bytes: segmentFrame(t, true, 1, true, nil)}, func(time.Duration, uswitch.Frame) {})
	frame := segmentFrame(t, true, 2, false, []byte("abc"))
	sum := binary.BigEndian.Uint16(frame[14+40+16:])
	impairer.Apply(0, uswitch.Frame{Bytes: frame, ChecksumPartial: true}, func(_ time.Duration, f uswitch.Frame) {
		if got := binary.BigEndian.Uint16(f.Bytes[14+40+16:]); got != sum || !f.ChecksumPartial || f.Bytes[len(f.Bytes)-2] != 'c' {
			t.Errorf("checksum %#x, was %#x; %q", got, sum, f.Bytes[len(f.Bytes)-3:])
		}
	})
}

// passThrough forwards all frames unchanged.
type passThrough struct{}

func (passThrough) Apply(_ time.Duration, f uswitch.Frame, emit uswitch.Emit) { emit(0, f) }
func (passThrough) NextTimer() time.Duration                                  { return uswitch.Never }
func (passThrough) HandleTimer(time.Duration, uswitch.Emit)                   {}
