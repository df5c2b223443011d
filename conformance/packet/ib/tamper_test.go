package ib

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/fabrictest/fabrictest/conformance/packet"
)

var (
	path4 = Packet{}.Via(netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")).To(0x11)
	path6 = Packet{}.Via(netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")).To(0x11)
)

func reparse(t *testing.T, p Packet) Packet {
	t.Helper()
	got, err := Parse(p.Build())
	if err != nil {
		t.Fatalf("%v: %v", p, err)
	}
	return got
}

// A change in flight makes the ICRC wrong, except in fields that it does not cover.
func TestICRCCoversInvariantFields(t *testing.T) {
	send := SendOnly(100, []byte("abcde")).AckReq()
	for name, c := range map[string]struct {
		path    Packet
		covered bool
		change  func(*Packet)
	}{
		"nothing":                   {path4, false, func(*Packet) {}},
		"type of service":           {path4, false, func(p *Packet) { p.IP.TClass = new(uint8(3)) }},
		"time to live":              {path4, false, func(p *Packet) { p.IP.HopLimit = new(uint8(3)) }},
		"IP checksum":               {path4, false, func(p *Packet) { p.IP.Checksum = new(uint16(3)) }},
		"UDP checksum":              {path4, false, func(p *Packet) { p.udpChecksum = true }},
		"FECN":                      {path4, false, func(p *Packet) { p.BTH.FECN = new(true) }},
		"BECN":                      {path4, false, func(p *Packet) { p.BTH.BECN = new(true) }},
		"reserved bits after BECN":  {path4, false, func(p *Packet) { p.BTH.Resv6 = new(uint8(0x3f)) }},
		"identification":            {path4, true, func(p *Packet) { p.IP.ID = new(uint32(7)) }},
		"DF":                        {path4, true, func(p *Packet) { p.IP.DF = new(false) }},
		"source address":            {path4, true, func(p *Packet) { p.IP.Src = netip.MustParseAddr("10.0.0.3") }},
		"source port":               {path4, true, func(p *Packet) { p.UDP.SrcPort = new(uint16(7)) }},
		"SE":                        {path4, true, func(p *Packet) { *p = p.SE() }},
		"MigReq":                    {path4, true, func(p *Packet) { *p = p.MigReq() }},
		"TVer":                      {path4, true, func(p *Packet) { *p = p.WithTVer(1) }},
		"P_Key":                     {path4, true, func(p *Packet) { *p = p.WithPKey(0x7fff) }},
		"queue pair":                {path4, true, func(p *Packet) { *p = p.To(0x12) }},
		"AckReq":                    {path4, true, func(p *Packet) { *p = p.NoAckReq() }},
		"reserved bits of AckReq":   {path4, true, func(p *Packet) { p.BTH.Resv7 = new(uint8(1)) }},
		"PSN, in place":             {path4, true, func(p *Packet) { *p.BTH.PSN++ }},
		"payload, in place":         {path4, true, func(p *Packet) { p.Payload[4] ^= 1 }},
		"pad":                       {path4, true, func(p *Packet) { p.Pad = []byte{0, 0, 1} }},
		"nothing, IPv6":             {path6, false, func(*Packet) {}},
		"traffic class":             {path6, false, func(p *Packet) { p.IP.TClass = new(uint8(0xff)) }},
		"flow label":                {path6, false, func(p *Packet) { p.IP.FlowLabel = new(uint32(0xfffff)) }},
		"hop limit":                 {path6, false, func(p *Packet) { p.IP.HopLimit = new(uint8(3)) }},
		"UDP checksum, IPv6":        {path6, false, func(p *Packet) { p.udpChecksum = true }},
		"destination address, IPv6": {path6, true, func(p *Packet) { p.IP.Dst = netip.MustParseAddr("fd00::3") }},
		"source port, IPv6":         {path6, true, func(p *Packet) { p.UDP.SrcPort = new(uint16(7)) }},
	} {
		p := send.Or(c.path).InFlight(c.change)
		for range 2 { // Build does not change the packet
			got := reparse(t, p)
			if err := got.CheckICRC(); errors.Is(err, ErrICRC) != c.covered || !c.covered && err != nil {
				t.Errorf("%s: %v, covered: %v", name, err, c.covered)
			}
		}
	}
	if string(send.Payload) != "abcde" || send.PSN() != 100 {
		t.Errorf("changes in flight reached the original: %v", send)
	}
}

// Flipping any covered bit changes the ICRC.
func TestICRCCoversEveryBit(t *testing.T) {
	for _, path := range []Packet{path4, path6} {
		b := SendOnly(100, []byte("abcd")).Or(path).Build()
		size := 20
		free := map[int]bool{1: true, 8: true, 10: true, 11: true, 26: true, 27: true, 32: true}
		if path.IP.Is6() {
			size = 40
			free = map[int]bool{1: true, 2: true, 3: true, 7: true, 46: true, 47: true, 52: true}
		}
		right, err := ICRC(b)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 8 * (len(b) - 4) {
			// The test does not flip version and header length, which select the layout.
			if i < 8 {
				continue
			}
			c := bytes.Clone(b)
			c[i/8] ^= 0x80 >> (i % 8)
			got, err := ICRC(c)
			if size == 40 && i/8 == 6 {
				continue // neither the next header
			}
			if err != nil {
				t.Fatalf("bit %d: %v", i, err)
			}
			if (got == right) != free[i/8] {
				t.Errorf("byte %d, bit %d flipped: ICRC %#08x, was %#08x", i/8, i%8, got, right)
			}
		}
	}
}

func TestBuildSendsChosenICRC(t *testing.T) {
	p := SendOnly(100, []byte("abcd")).Or(path4)
	right := *reparse(t, p).ICRC
	wire := p.Build()
	if got := binary.LittleEndian.Uint32(wire[len(wire)-4:]); got != right {
		t.Fatalf("ICRC %#08x on the wire, least significant byte first, is %#08x", right, got)
	}
	swapped := p.ChooseICRC(bits.ReverseBytes32).Build()
	if got := binary.BigEndian.Uint32(swapped[len(swapped)-4:]); got != right {
		t.Errorf("swapped ICRC %#08x, want %#08x", got, right)
	}
	seven := func(uint32) uint32 { return 7 }
	for name, odd := range map[string]Packet{"bad": p.BadICRC(), "swapped": p.ChooseICRC(bits.ReverseBytes32), "chosen": p.ChooseICRC(seven)} {
		if err := reparse(t, odd).CheckICRC(); !errors.Is(err, ErrICRC) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := *reparse(t, p.ChooseICRC(seven)).ICRC; got != 7 {
		t.Errorf("ICRC %d, want 7", got)
	}
	b := p.Damaged(func(ip []byte) { ip[1] = 0xff }).Build()
	if b[1] != 0xff || !bytes.Equal(b[2:], wire[2:]) {
		t.Errorf("the rest of the packet changed: %x, was %x", b, wire)
	}
}

func TestParseRejectsWrongLengths(t *testing.T) {
	p := SendOnly(100, []byte("abcd")).Or(path4)
	if got := reparse(t, p.WithTrailer(make([]byte, 12))); len(got.Trailer) != 12 || got.CheckICRC() != nil || len(got.Payload) != 4 {
		t.Errorf("with a trailer: %v, %d bytes of trailer", got, len(got.Trailer))
	}
	lengths := func(ip, udp *uint16) Packet { q := p; q.IP.Length, q.UDP.Length = ip, udp; return q }
	for name, odd := range map[string]Packet{
		"IP length of more":  lengths(new(uint16(100)), nil),
		"IP length of less":  lengths(new(uint16(44)), nil),
		"UDP length of more": lengths(nil, new(uint16(100))),
		"UDP length of less": lengths(nil, new(uint16(7))),
		"another port":       p.WithDstPort(4790),
		"pad of nothing":     p.WithBody(nil).WithPadCnt(3),
		"other protocol":     {IP: packet.IP{Protocol: new(uint8(6))}},
		"fragment":           {IP: packet.IP{MF: new(true)}},
	} {
		if got, err := Parse(odd.Or(path4).Build()); err == nil {
			t.Errorf("%s: %v, and no error", name, got)
		}
	}
	if got, err := Parse(p.WithBody([]byte("ab")).WithPadCnt(3).Build()); !errors.Is(err, ErrPad) || string(got.Payload) != "ab" || got.Pad == nil || len(got.Pad) != 0 {
		t.Errorf("more padding than payload: %q and %q, %v", got.Payload, got.Pad, err)
	}
	// A packet of another protocol has no ICRC, although it is long enough for one.
	if got, err := Parse(p.WithDstPort(4790).Build()); !errors.Is(err, ErrNotRoCE) || got.CheckICRC() == nil || got.PSN() != 0 {
		t.Errorf("another port: PSN %d, %v, ICRC %v", got.PSN(), err, got.CheckICRC())
	}
	bytesOf := p.WithPayload([]byte("abcde")).Build()
	padded, err := Parse(bytesOf)
	clear(bytesOf)
	_ = append(padded.Payload, 0xff)
	if err != nil || string(padded.Payload) != "abcde" || string(padded.Pad) != "\x00\x00\x00" {
		t.Errorf("payload %q, pad %q, %v: it must not alias other bytes", padded.Payload, padded.Pad, err)
	}
	whole := SendOnly(100, nil).Or(path4).Build()
	for n := range len(whole) {
		if _, err := ICRC(whole[:n]); !errors.Is(err, packet.ErrShort) {
			t.Errorf("ICRC of %d bytes: %v", n, err)
		}
	}
	if _, err := ICRC(whole[:43]); err.Error() != "ICRC: too short: 23 bytes after the IP header, not 24" {
		t.Error(err)
	}
	longer := p
	longer.Behind = []byte("x")
	behind, err := Parse(longer.Build())
	if !errors.Is(err, ErrBehind) || string(behind.Behind) != "x" || string(behind.Payload) != "abcd" || behind.CheckICRC() != nil {
		t.Errorf("bytes after the packet: %v, %v", behind, err)
	}
	// The ICRC covers IP options, although RoCEv2 does not allow them.
	options := p
	options.IP.Options = []byte{1, 1, 1, 1}
	if err := reparse(t, options).CheckICRC(); err != nil {
		t.Error(err)
	}
}

var (
	host1 = netip.MustParseAddr("10.0.0.1")
	host2 = netip.MustParseAddr("10.0.0.2")
)

// Identify finds the original values, and none for a wrong ICRC.
func TestIdentify(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	taken := 0
	for n := range 2000 {
		p := SendOnly(PSN(n), make([]byte, n%300)).Via(host1, host2)
		id, df := uint16(r.Uint32()), r.IntN(2) == 0
		p.IP.ID, p.IP.DF = new(uint32(id)), &df
		b := p.Build()
		b[4], b[5], b[6] = 0, 0, 0x40 // a socket does not report them
		gotID, gotDF, ok := Identify(b)
		if !ok || gotID != id || gotDF != df {
			t.Fatalf("%#x, DF %v: found %#x, %v, %v", id, df, gotID, gotDF, ok)
		}
		p.ICRC = new(r.Uint32())
		if _, _, ok := Identify(p.Build()); ok {
			taken++
		}
	}
	if taken > 2 {
		t.Errorf("%d of 2000 random ICRCs are correct for some header", taken)
	}
	for _, b := range [][]byte{nil, make([]byte, 30), SendOnly(1, nil).Via(netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")).Build()} {
		if _, _, ok := Identify(b); ok {
			t.Errorf("found an identification in %x", b)
		}
	}
}

func TestSocketPacketsReportUnseenFields(t *testing.T) {
	parsed, err := Parse(SendOnly(1, []byte{1}).Via(host1, host2).Build())
	if err != nil {
		t.Fatal(err)
	}
	df := Packet{}
	df.IP.DF = new(true)
	sum := Packet{}
	sum.UDP.Checksum = new(uint16(0))
	options, behind := Packet{}, Packet{Behind: []byte{}}
	options.IP.Options = []byte{}
	ttl := SendOnly(1, nil)
	ttl.IP.HopLimit, ttl.UDP.SrcPort = new(uint8(64)), new(uint16(0xc000))
	for _, c := range []struct {
		want   Packet
		unseen int
	}{{df, 1}, {sum, 1}, {df.Or(sum), 2}, {ttl, 0}, {options, 1}, {behind, 1}} {
		if len(c.want.UnseenFields(parsed)) > 0 || len(c.want.UnseenFields(parsed.AsFromSocket())) != c.unseen {
			t.Errorf("%v", c.want)
		}
	}
	if f := parsed.AsFromSocket().Faults(); len(f) > 0 {
		t.Errorf("%v", f)
	}
	if parsed.IP.DF == nil {
		t.Error("the packet itself was changed")
	}
}
