package ethernet

import (
	"bytes"
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
	sum := fold(h.pseudoSum(b))
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
		if sum := fold(h.pseudoSum(b)); b[at] != byte(sum>>8) || b[at+1] != byte(sum) {
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
	p := must.Get(NewImpairer(cfg, Options{Dissector: d, Source: Sources(1, "net", "a", Up)}))(tb)
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
	if !h.parse(b) || h.proto != protoUDP {
		tb.Fatalf("no datagram in %x", b)
	}
	h.datagram(b, &d)
	return d
}
