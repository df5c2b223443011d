package packet

import (
	"bytes"
	"encoding/hex"
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

func unhex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}

var (
	a4, b4 = netip.MustParseAddr("10.77.0.11"), netip.MustParseAddr("10.77.0.12")
	a6, b6 = netip.MustParseAddr("fd77::11"), netip.MustParseAddr("fd77::1")
)

// Packets that Linux sent, with its checksums.
var (
	linux4 = unhex("45000030953e4000401190ce0a4d000b0a4d000cc93f12b7001c00001100ffff0000001f004bcf5b1f000001d3517b4a")
	linux6 = unhex("62000000001c1140fd770000000000000000000000000011fd770000000000000000000000000001c33412b7001c00001100ffff00100001000000641f000001b75794b0")
)

func TestIPMatchesPacketsOfLinux(t *testing.T) {
	h, payload, trailer, err := ParseIP(append(bytes.Clone(linux4), 0, 0, 0))
	if err != nil || len(payload) != 28 || len(trailer) != 3 {
		t.Fatalf("%d bytes of payload, %d of trailer, %v", len(payload), len(trailer), err)
	}
	want := IP{
		Src: a4, Dst: b4, Version: new(uint8(4)), IHL: new(uint8(5)), TClass: new(uint8(0)), Length: new(uint16(48)), ID: new(uint32(0x953e)),
		ReservedFlag: new(false), DF: new(true), MF: new(false), FragOff: new(uint16(0)), HopLimit: new(uint8(64)), Protocol: new(uint8(17)),
		Checksum: new(uint16(0x90ce)), Options: []byte{},
	}
	var d Differences
	if want.Diff(&d, h); d != nil {
		t.Error(d)
	}
	if got := h.WithoutComputed().Append(nil, payload); !bytes.Equal(got, linux4) {
		t.Errorf("built %x, want %x", got, linux4)
	}
	if got := (IP{Src: a4, Dst: b4, ID: new(uint32(0x953e))}).Append(nil, payload); !bytes.Equal(got, linux4) {
		t.Errorf("built from defaults %x, want %x", got, linux4)
	}

	h, payload, trailer, err = ParseIP(linux6)
	if err != nil || len(payload) != 28 || len(trailer) != 0 {
		t.Fatalf("%d bytes of payload, %d of trailer, %v", len(payload), len(trailer), err)
	}
	want = IP{
		Src: a6, Dst: b6, Version: new(uint8(6)), TClass: new(uint8(0x20)), FlowLabel: new(uint32(0)), Length: new(uint16(28)),
		HopLimit: new(uint8(64)), Protocol: new(uint8(17)),
	}
	if want.Diff(&d, h); d != nil {
		t.Error(d)
	}
	if got := (IP{Src: a6, Dst: b6, TClass: new(uint8(0x20))}).Append(nil, payload); !bytes.Equal(got, linux6) {
		t.Errorf("built from defaults %x, want %x", got, linux6)
	}
}

func TestIPEncodesEveryField(t *testing.T) {
	payload := []byte("abcdefgh")
	for name, c := range map[string]struct {
		h    IP
		want string
	}{
		"IPv4 with wrong fields": {
			IP{
				Src: a4, Dst: b4, Version: new(uint8(5)), IHL: new(uint8(7)), TClass: new(uint8(0x6b)), Length: new(uint16(0x1234)), ID: new(uint32(0x5678)),
				ReservedFlag: new(true), DF: new(false), MF: new(true), FragOff: new(uint16(0x1abc)), HopLimit: new(uint8(7)), Protocol: new(uint8(6)),
				Checksum: new(uint16(0xdead)), Options: []byte{1, 2, 3, 4, 5},
			},
			"576b12345678babc0706dead" + "0a4d000b0a4d000c" + "0102030405000000" + "6162636465666768",
		},
		"IPv6 with wrong fields": {
			IP{
				Src: a6, Dst: b6, Version: new(uint8(7)), TClass: new(uint8(0x6b)), FlowLabel: new(uint32(0xabcde)), Length: new(uint16(0x1234)),
				HopLimit: new(uint8(7)), Protocol: new(uint8(6)),
			},
			"76babcde12340607" + "fd770000000000000000000000000011" + "fd770000000000000000000000000001" + "6162636465666768",
		},
		"IPv6 fragment": {
			IP{Src: a6, Dst: b6, FragOff: new(uint16(0x1abc)), MF: new(true), ID: new(uint32(0x01020304))},
			"6000000000102c40" + "fd770000000000000000000000000011" + "fd770000000000000000000000000001" + "1100d5e101020304" + "6162636465666768",
		},
	} {
		if got := hex.EncodeToString(c.h.Append(nil, payload)); got != c.want {
			t.Errorf("%s:\n%s, want\n%s", name, got, c.want)
		}
	}
	h, payload, _, err := ParseIP(IP{Src: a6, Dst: b6, FragOff: new(uint16(5)), ID: new(uint32(9))}.Append(nil, payload))
	if err != nil || *h.FragOff != 5 || *h.ID != 9 || *h.Protocol != ProtocolUDP || !h.Fragmented() || string(payload) != "abcdefgh" {
		t.Errorf("fragment: %+v, %q, %v", h, payload, err)
	}
}

// ParseIP returns every field that Append encodes, and no bit of one field in another.
func TestIPParsesEveryField(t *testing.T) {
	no, yes, v4, v6, top, one := new(false), new(true), new(uint8(4)), new(uint8(6)), new(uint8(0xff)), new(uint8(1))
	for name, h := range map[string]IP{
		"IPv4, ones":  {Src: a4, Dst: b4, Version: v4, TClass: top, ID: new(uint32(0xffff)), ReservedFlag: no, DF: no, MF: no, FragOff: new(uint16(0x1fff)), HopLimit: top, Protocol: top, Options: []byte{}},
		"IPv4, flags": {Src: a4, Dst: b4, Version: v4, TClass: one, ID: new(uint32(1)), ReservedFlag: yes, DF: yes, MF: yes, FragOff: new(uint16(0)), HopLimit: one, Protocol: one, Options: []byte{1, 2, 3, 4}},
		"IPv4, DF":    {Src: a4, Dst: b4, ReservedFlag: no, DF: yes, MF: no},
		"IPv6, ones":  {Src: a6, Dst: b6, Version: v6, TClass: top, FlowLabel: new(uint32(0xfffff)), HopLimit: top, Protocol: top},
		"IPv6, label": {Src: a6, Dst: b6, Version: v6, TClass: one, FlowLabel: new(uint32(0x80001)), HopLimit: one, Protocol: one},
		"fragment":    {Src: a6, Dst: b6, MF: yes, FragOff: new(uint16(0)), ID: new(uint32(0xffffffff)), Protocol: one},
		"only MF":     {Src: a6, Dst: b6, MF: yes},
		"only ID":     {Src: a6, Dst: b6, ID: new(uint32(7))},
		"only offset": {Src: a6, Dst: b6, FragOff: new(uint16(7))},
		"IPv6":        {Src: a6, Dst: b6},
		"last":        {Src: a6, Dst: b6, MF: no, FragOff: new(uint16(0x1fff)), ID: new(uint32(0)), Protocol: one},
	} {
		b := h.Append(nil, nil)
		if _, payload, trailer, err := ParseIP(b); err != nil || len(payload) != 0 || len(trailer) != 0 {
			t.Errorf("%s without a trailer: %d bytes of payload, %d of trailer, %v", name, len(payload), len(trailer), err)
		}
		got, payload, trailer, err := ParseIP(append(b, 9))
		var d Differences
		if h.Diff(&d, got); d != nil || err != nil || len(payload) != 0 || len(trailer) != 1 {
			t.Errorf("%s: %v, %d bytes of payload, %v", name, d, len(payload), err)
		}
		if want := Get(h.MF, false) || Get(h.FragOff, 0) != 0; got.Fragmented() != want {
			t.Errorf("%s: fragmented %v", name, !want)
		}
	}
	defaults, _, _, _ := ParseIP(IP{Src: a4, Dst: b4}.Append(nil, nil))
	want := IP{TClass: new(uint8(0)), ID: new(uint32(0)), ReservedFlag: no, DF: yes, MF: no, FragOff: new(uint16(0)), HopLimit: new(uint8(64)), Protocol: new(uint8(17)), Options: []byte{}}
	var d Differences
	if want.Diff(&d, defaults); d != nil {
		t.Errorf("defaults: %v", d)
	}
	defaults, _, _, _ = ParseIP(IP{Src: a6, Dst: b6}.Append(nil, nil))
	want = IP{TClass: new(uint8(0)), FlowLabel: new(uint32(0)), HopLimit: new(uint8(64)), Protocol: new(uint8(17))}
	if want.Diff(&d, defaults); d != nil {
		t.Errorf("defaults of IPv6: %v", d)
	}
	fragment, _, _, _ := ParseIP(IP{Src: a6, Dst: b6, MF: yes}.Append(nil, nil))
	want = IP{ID: new(uint32(0)), FragOff: new(uint16(0)), Protocol: new(uint8(17))}
	if want.Diff(&d, fragment); d != nil {
		t.Errorf("defaults of a fragment: %v", d)
	}
}

// Diff compares each field of the headers.
func TestDiffComparesEveryHeaderField(t *testing.T) {
	check := func(base any, diff func(changed any) Differences) {
		for i := range reflect.TypeOf(base).NumField() {
			c := reflect.New(reflect.TypeOf(base)).Elem()
			c.Set(reflect.ValueOf(base))
			f := c.Field(i)
			switch {
			case !f.CanSet():
				continue
			case f.Type() == addrType:
				f.Set(reflect.ValueOf(netip.MustParseAddr("1.2.3.4")))
			case f.Kind() == reflect.Slice:
				f.SetBytes([]byte{1})
			default:
				f.Set(reflect.New(f.Type().Elem())) // false or 0
			}
			if d := diff(c.Interface()); len(d) != 1 {
				t.Errorf("%s changed: %v", reflect.TypeOf(base).Field(i).Name, d)
			}
		}
	}
	ip := IP{
		Src: a4, Dst: b4, Version: new(uint8(4)), IHL: new(uint8(5)), TClass: new(uint8(1)), Length: new(uint16(1)), ID: new(uint32(1)),
		ReservedFlag: new(true), DF: new(true), MF: new(true), FragOff: new(uint16(1)), HopLimit: new(uint8(1)), Protocol: new(uint8(1)),
		Checksum: new(uint16(1)), Options: []byte{}, FlowLabel: new(uint32(1)),
	}
	check(ip, func(c any) (d Differences) { ip.Diff(&d, c.(IP)); return d })
	udp := UDP{SrcPort: new(uint16(1)), DstPort: new(uint16(1)), Length: new(uint16(1)), Checksum: new(uint16(1))}
	check(udp, func(c any) (d Differences) { udp.Diff(&d, c.(UDP)); return d })
}

// A packet that cannot be parsed has the version that it says, and its bytes after the parsed part
// as the payload.
func TestUnparsedPackets(t *testing.T) {
	fragment := new(uint8(ProtocolFragment))
	for _, c := range []struct {
		b       []byte
		version uint8
		payload int
		want    string
	}{
		{[]byte{0x51, 2, 3}, 5, 3, "IP version 5"},
		{linux4[:19], 4, 19, "19 of 20 bytes"},
		{linux6[:39], 6, 39, "39 of 40 bytes"},
		{IP{Src: a4, IHL: new(uint8(6))}.Append(nil, make([]byte, 3)), 4, 3, "the header has 24 bytes, there are 23"},
		{IP{Src: a6, Protocol: fragment}.Append(nil, make([]byte, 7)), 6, 7, ": 7 of 8 bytes"},
		{IP{Src: a6, Protocol: fragment}.Append(nil, []byte{17, 0, 0, 6, 0, 0, 0, 0, 9}), 6, 1, "reserved bits"},
	} {
		h, payload, _, err := ParseIP(c.b)
		if err == nil || !strings.Contains(err.Error(), c.want) || *h.Version != c.version || len(payload) != c.payload {
			t.Errorf("%x: version %d, %d bytes of payload, %v; want %d, %d, %q", c.b, *h.Version, len(payload), err, c.version, c.payload, c.want)
		}
	}
}

func TestIPErrors(t *testing.T) {
	for _, b := range [][]byte{linux4, linux6} {
		for n := range b {
			if _, _, _, err := ParseIP(b[:n]); !errors.Is(err, ErrShort) {
				t.Errorf("%d bytes: %v", n, err)
			}
		}
	}
	for name, b := range map[string][]byte{
		"version 5":        IP{Src: a4, Version: new(uint8(5))}.Append(nil, nil),
		"IHL 4":            IP{Src: a4, IHL: new(uint8(4))}.Append(nil, nil),
		"IHL beyond":       IP{Src: a4, IHL: new(uint8(6))}.Append(nil, nil),
		"length 19":        IP{Src: a4, Length: new(uint16(19))}.Append(nil, nil),
		"length beyond":    IP{Src: a4, Length: new(uint16(21))}.Append(nil, nil),
		"length beyond 6":  IP{Src: a6, Length: new(uint16(1))}.Append(nil, nil),
		"fragment cut off": IP{Src: a6, Protocol: new(uint8(ProtocolFragment))}.Append(nil, make([]byte, 7)),
		"length in fragment header": IP{Src: a6, Protocol: new(uint8(ProtocolFragment)), Length: new(uint16(4))}.Append(nil,
			make([]byte, 8)),
		"fragment, reserved": IP{Src: a6, Protocol: new(uint8(ProtocolFragment))}.Append(nil, []byte{17, 1, 0, 0, 0, 0, 0, 0}),
	} {
		if h, _, _, err := ParseIP(b); err == nil {
			t.Errorf("%s: %+v, no error", name, h)
		}
	}
}

func TestIPDiff(t *testing.T) {
	got, _, _, err := ParseIP(linux4)
	if err != nil {
		t.Fatal(err)
	}
	for want, h := range map[string]IP{
		"":                               {},
		"hop limit: want 7, got 64":      {HopLimit: new(uint8(7))},
		"DF: want false, got true":       {DF: new(false)},
		"IP options: want 4 B, got 0 B":  {Options: make([]byte, 4)},
		"flow label: want 0x5, got none": {FlowLabel: new(uint32(5))},
		"destination address: want 10.77.0.11, got 10.77.0.12": {Dst: a4},
		"IP identification: want 0x0, got 0x953e":              {ID: new(uint32(0))},
	} {
		var d Differences
		if h.Diff(&d, got); d.String() != want {
			t.Errorf("%q, want %q", d, want)
		}
	}
}

func TestUDP(t *testing.T) {
	// tshark accepts these checksums.
	for want, b := range map[uint16][]byte{
		0xaac4: unhex("4500003400004000401126b70a0000010a000002c00012b70020aac40400ffff00000011000000116162636465666768" + "87ae50c9"),
		0xf3a0: unhex("6000000000201140fd000000000000000000000000000001fd000000000000000000000000000002c00012b70020f3a00400ffff00000011000000116162636465666768" + "fb26ae72"),
	} {
		ip, datagram, _, err := ParseIP(b)
		if err != nil {
			t.Fatal(err)
		}
		h, payload, _, err := ParseUDP(datagram)
		if err != nil || *h.Checksum != want {
			t.Errorf("checksum %#04x, want %#04x, %v", *h.Checksum, want, err)
		}
		if got := (UDP{SrcPort: h.SrcPort, DstPort: h.DstPort}).Append(nil, ip, payload); !bytes.Equal(got, datagram) {
			t.Errorf("built %x, want %x", got, datagram)
		}
	}
	lo := netip.MustParseAddr("127.0.0.1")
	for _, ip := range []IP{{Src: lo, Dst: lo}, {Src: a6, Dst: b6}} {
		for n := range 6 { // also odd lengths
			payload := []byte("hello")[:n]
			b := UDP{SrcPort: new(uint16(40001)), DstPort: new(uint16(53))}.Append(nil, ip, payload)
			if sum := Checksum(pseudoHeader(ip.Src, ip.Dst, ProtocolUDP, len(b)), b); sum != 0 {
				t.Errorf("%d bytes: with its checksum the datagram sums up to %#04x", n, sum)
			}
			h, got, trailer, err := ParseUDP(append(b, 1, 2))
			if err != nil || *h.SrcPort != 40001 || *h.DstPort != 53 || !bytes.Equal(got, payload) || len(trailer) != 2 {
				t.Errorf("parsed %+v, %q, %x, %v", h, got, trailer, err)
			}
		}
	}
	// A checksum of 0 is sent as 0xffff, because 0 means no checksum.
	zero := UDP{SrcPort: new(uint16(0)), DstPort: new(uint16(0))}
	ip := IP{Src: netip.MustParseAddr("0.0.0.0"), Dst: netip.MustParseAddr("0.0.0.0")}
	payload := []byte{0xff, 0xff - 17 - 20} // with protocol and twice the length the sum is 0xffff
	if b := zero.Append(nil, ip, payload); b[6] != 0xff || b[7] != 0xff {
		t.Errorf("sum of zero sent as %x", b[6:8])
	}
	odd := UDP{SrcPort: new(uint16(1)), DstPort: new(uint16(2)), Length: new(uint16(3)), Checksum: new(uint16(4))}
	b := odd.Append(nil, ip, []byte("x"))
	if hex.EncodeToString(b) != "000100020003000478" {
		t.Errorf("with a wrong length and checksum: %x", b)
	}
	if _, _, _, err := ParseUDP(b); err == nil {
		t.Error("length 3: no error")
	}
	for n := range 8 {
		if _, _, _, err := ParseUDP(unhex("0001000200080000")[:n]); !errors.Is(err, ErrShort) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	if _, _, _, err := ParseUDP(unhex("00010002000c000061")); !errors.Is(err, ErrShort) {
		t.Errorf("payload cut: %v", err)
	}
}

func TestChecksum(t *testing.T) {
	if got := hex.EncodeToString(pseudoHeader(a4, b4, ProtocolUDP, 0x1234)); got != "0a4d000b0a4d000c00111234" {
		t.Errorf("pseudo-header of IPv4: %s", got)
	}
	if got := hex.EncodeToString(pseudoHeader(a6, b6, ProtocolUDP, 0x1234)[32:]); got != "0000123400000011" {
		t.Errorf("pseudo-header of IPv6: %s", got)
	}
	// RFC 1071, section 3: the sum is ddf2.
	if got := Checksum(unhex("0001f203f4f5f6f7")); got != 0xffff-0xddf2 {
		t.Errorf("%#04x", got)
	}
	if got := Checksum(unhex("0001f203"), unhex("f4f5f6f7")); got != 0xffff-0xddf2 {
		t.Errorf("in two parts %#04x", got)
	}
	if got := Checksum([]byte{0xff, 0xff, 0, 1}); got != 0xfffe { // the carry is added once
		t.Errorf("with a carry %#04x", got)
	}
	if got := Checksum(linux4[:20]); got != 0 {
		t.Errorf("of a header with its checksum %#04x", got)
	}
}

// FuzzIP: Append of a parsed packet returns the same bytes.
func FuzzIP(f *testing.F) {
	f.Add(linux4)
	f.Add(linux6)
	f.Add(IP{Src: a6, Dst: b6, FragOff: new(uint16(5))}.Append(nil, []byte("x")))
	f.Add(IP{Src: a4, Dst: b4, Options: []byte{1}}.Append(nil, []byte("x")))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, payload, trailer, err := ParseIP(b)
		if err != nil {
			return
		}
		if got := append(h.Append(nil, payload), trailer...); !bytes.Equal(got, b) {
			t.Fatalf("built %x, from %x", got, b)
		}
		var d Differences
		if h.Diff(&d, h); d != nil {
			t.Fatal(d)
		}
		u, data, trailer, err := ParseUDP(payload)
		if err != nil {
			return
		}
		if got := append(u.Append(nil, h, data), trailer...); !bytes.Equal(got, payload) {
			t.Fatalf("built %x, from %x", got, payload)
		}
	})
}

func TestFragmentsReassembleToThePacket(t *testing.T) {
	payload := bytes.Repeat([]byte("abcdefg"), 12)
	whole := IP{Src: a4, Dst: b4, ID: new(uint32(0x4711))}.Append(nil, bytes.Clone(payload))
	parts, err := Fragments(whole, 48)
	if err != nil {
		t.Fatal(err)
	}
	var got []byte
	for i, part := range parts {
		h, payload, trailer, err := ParseIP(part)
		if err != nil || len(trailer) != 0 {
			t.Fatalf("fragment %d: %v, trailer %x", i, err, trailer)
		}
		if int(*h.FragOff)*8 != len(got) || *h.MF != (i == 0) || *h.DF || *h.ID != 0x4711 {
			t.Errorf("fragment %d at %d: offset %d, MF %v, DF %v, ID %#x", i, len(got), *h.FragOff*8, *h.MF, *h.DF, *h.ID)
		}
		if Checksum(part[:20]) != 0 {
			t.Errorf("fragment %d has a wrong header checksum", i)
		}
		got = append(got, payload...)
	}
	if !bytes.Equal(got, payload) {
		t.Errorf("the fragments carry %x, want %x", got, payload)
	}
}
