package bench

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"reflect"
	"testing"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
)

var testDatagrams = []link.Datagram{
	{Src: netip.MustParseAddrPort("10.66.0.1:49152"), Dst: netip.MustParseAddrPort("10.66.0.16:4791"), TClass: 0x6a, HopLimit: 64, IPID: 0xbeef, Payload: []byte("odd")},
	{Src: netip.MustParseAddrPort("[fd00::1]:1"), Dst: netip.MustParseAddrPort("[ff15::2]:65535"), TClass: 0xff, HopLimit: 1, FlowLabel: 0xfffff, Payload: bytes.Repeat([]byte{0xff}, 4097)},
	{Src: netip.MustParseAddrPort("[fd00::1]:1"), Dst: netip.MustParseAddrPort("[fd00::2]:2"), HopLimit: 255, Payload: []byte{}},
}

func TestPacketRoundTrip(t *testing.T) {
	for _, d := range testDatagrams {
		p := link.AppendUDP(nil, &d)
		got, err := parsePacket(p)
		if err != nil || !reflect.DeepEqual(got, d) || len(p) != d.IPBytes() {
			t.Errorf("%+v became %+v, %v", d, got, err)
		}
		if p[9] == link.ProtocolUDP && binary.BigEndian.Uint16(p[6:]) != link.DontFragment {
			t.Error("no DF over IPv4")
		}
		// A packet without a checksum is valid.
		udp := len(p) - len(d.Payload) - link.UDPHeaderLen
		p[udp+6], p[udp+7] = 0, 0
		if _, err := parsePacket(p); err != nil {
			t.Error(err)
		}
	}
}

func TestOnesComplementSum(t *testing.T) {
	d := link.Datagram{Src: netip.MustParseAddrPort("192.0.2.1:1024"), Dst: netip.MustParseAddrPort("192.0.2.2:53"), HopLimit: 64, IPID: 1, Payload: []byte{1, 2, 3}}
	p := link.AppendUDP(nil, &d)
	// By hand: 4500+001f+0001+4000+4011+c000+0201+c000+0202 = 24934, folded 4936, inverted b6c9.
	if got := binary.BigEndian.Uint16(p[10:]); got != 0xb6c9 {
		t.Errorf("header checksum %#04x", got)
	}
	// c000+0201+c000+0202+0011+000b+0400+0035+000b+0102+0300 = 18c61, folded 8c62, inverted 739d.
	if got := binary.BigEndian.Uint16(p[26:]); got != 0x739d {
		t.Errorf("UDP checksum %#04x", got)
	}
}

func TestParsePacketErrors(t *testing.T) {
	v4, v6 := link.AppendUDP(nil, &testDatagrams[0]), link.AppendUDP(nil, &testDatagrams[2])
	seal := func(p []byte) {
		p[10], p[11] = 0, 0
		binary.BigEndian.PutUint16(p[10:], link.Checksum(p[:20]))
	}
	for name, packet := range map[string][]byte{
		"empty":             nil,
		"version":           changed(v4, func(p []byte) { p[0] = 0x55 }),
		"options":           changed(v4, func(p []byte) { p[0] = 0x46 }),
		"short":             v4[:19],
		"length":            changed(v4, func(p []byte) { p[3]++; seal(p) }),
		"more fragments":    changed(v4, func(p []byte) { p[6] = 0x20; seal(p) }),
		"fragment offset":   changed(v4, func(p []byte) { p[7] = 1; seal(p) }),
		"reserved flag":     changed(v4, func(p []byte) { p[6] |= 0x80; seal(p) }),
		"header checksum":   changed(v4, func(p []byte) { p[10]++ }),
		"TCP":               changed(v4, func(p []byte) { p[9] = 6; seal(p) }),
		"hop limit 0":       changed(v4, func(p []byte) { p[8] = 0; seal(p) }),
		"UDP checksum":      changed(v4, func(p []byte) { p[26]++ }),
		"UDP length":        changed(v4, func(p []byte) { p[25]-- }),
		"short v6":          v6[:39],
		"short UDP header":  changed(v6[:44], func(p []byte) { p[5] = 4 }),
		"length v6":         changed(v6, func(p []byte) { p[5]++ }),
		"extension headers": changed(v6, func(p []byte) { p[6] = 44 }),
		"mapped":            changed(v6, func(p []byte) { copy(p[8:], make([]byte, 10)); p[18], p[19] = 0xff, 0xff }),
	} {
		if d, err := parsePacket(packet); !errors.Is(err, conformance.ErrBenchCannot) {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
	for i, packet := range map[int][]byte{0: v4, 2: v6} {
		for _, n := range []int{1, 46} {
			d, err := parsePacket(append(bytes.Clone(packet), make([]byte, n)...))
			if err != nil || d.Variants != link.Padded || !bytes.Equal(d.Payload, testDatagrams[i].Payload) {
				t.Errorf("%d bytes after %x: %+v, %v", n, packet, d, err)
			}
		}
	}
	for want, packet := range map[link.HeaderVariants][]byte{
		link.MayFragment: changed(v4, func(p []byte) { p[6] = 0; seal(p) }),
		link.NoChecksum:  changed(v6, func(p []byte) { p[46], p[47] = 0, 0 }),
	} {
		d, err := parsePacket(packet)
		if err != nil || d.Variants != want || !bytes.Equal(link.AppendUDP(nil, &d), packet) {
			t.Errorf("%+v, %v, from %x", d, err, packet)
		}
	}
}

func changed(p []byte, change func([]byte)) []byte {
	p = bytes.Clone(p)
	change(p)
	return p
}

func TestSimWireErrors(t *testing.T) {
	must.Do(t, runSimulated(t, "softroce", conformance.BenchSpec{}, func(b *conformance.Bench) error {
		_, long := rawSend(b.Peers[0], b.Local[0], 1, string(make([]byte, 9000)))
		_, other := rawSend(hostAddr(4, 9), hostAddr(4, 8), 1, "x")
		for _, p := range [][]byte{{1}, long, other} {
			if err := b.Wire.Send(p); !errors.Is(err, conformance.ErrBenchCannot) {
				return err
			}
		}
		if events, _ := b.Record.Events(); len(events) != 0 {
			t.Errorf("%d events on record", len(events))
		}
		return nil
	}))
}
