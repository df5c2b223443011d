package ib

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"reflect"
	"testing"

	"github.com/fabrictest/fabrictest/conformance/packet"
)

// TestLayouts sets each field to a different value and checks the bytes.
func TestLayouts(t *testing.T) {
	reth := At(uint64(0x0102030405060708), uint32(0x11121314), 0x21222324)
	cases := []struct {
		name, want string // from the BTH to before the ICRC
		p          Packet
	}{
		{"BTH", "04efabcdff123456fffedcba", Packet{BTH: BTH{
			Opcode: new(OpSendOnly), SE: new(true), MigReq: new(true), PadCnt: new(uint8(2)), TVer: new(uint8(15)), PKey: new(uint16(0xabcd)),
			FECN: new(true), BECN: new(true), Resv6: new(uint8(0x3f)), DestQP: new(uint32(0x123456)), AckReq: new(true), Resv7: new(uint8(0x7f)), PSN: new(PSN(0xfedcba)),
		}}},
		{"SE", "0480ffff0000000000000000", Op(OpSendOnly).SE()},
		{"MigReq", "0440ffff0000000000000000", Op(OpSendOnly).MigReq()},
		{"PadCnt", "0430ffff0000000000000000", Op(OpSendOnly).WithPadCnt(3)},
		{"TVer", "0405ffff0000000000000000", Op(OpSendOnly).WithTVer(5)},
		{"FECN", "0400ffff8000000000000000", Packet{BTH: BTH{Opcode: new(OpSendOnly), FECN: new(true)}}},
		{"BECN", "0400ffff4000000000000000", Packet{BTH: BTH{Opcode: new(OpSendOnly), BECN: new(true)}}},
		{"reserved", "0400ffff2a00000055000000", Op(OpSendOnly).WithReserved(0x2a, 0x55)},
		{"AckReq", "0400ffff0000000080000000", Op(OpSendOnly).AckReq()},
		{"WRITE_ONLY_IMM", "0b00ffff00000011000000070102030405060708111213142122232431323334aabbccdd", WriteOnlyImm(7, reth, 0x31323334, unhex("aabbccdd")).To(0x11)},
		{"COMPARE_SWAP", "1300ffff0000000000000007010203040506070811121314" + "0000000000000002" + "0000000000000001", CompareSwap(7, reth, 1, 2)},
		{"FETCH_ADD", "1400ffff0000000000000007010203040506070811121314" + "0000000000000005" + "0000000000000000", FetchAdd(7, reth, 5)},
		{"FLUSH", "1c00ffff0000000000000007" + "00000013" + "01020304050607081112131421222324", Flush(7, 3, 1, reth)},
		{"ATOMIC_WRITE", "1d00ffff0000000000000007" + "01020304050607081112131421222324" + "4142434445464748", AtomicWrite(7, reth, []byte("ABCDEFGH"))},
		{"UC", "2400ffff000000000000000741000000", SendOnly(7, []byte("A")).WithPadCnt(0).On(UC)},
		{"XRC", "a400ffff0000000000000007" + "00123456", SendOnly(7, nil).OnXRC(0x123456)},
		{"XRC response", "b100ffff0000000000000007" + "1f000002", Ack(7, 2).On(XRC)},
		{"UD", "6400ffff0000000000000007" + "deadbeef00123456", Datagram(7, 0xdeadbeef, 0x123456, nil)},
		{"RD", "4400ffff0000000000000007" + "00123456" + "deadbeef00654321", Packet{Extensions: Extensions{RDETH: &RDETH{EE: new(uint32(0x123456))}}}.WithOpcode(RD.Op(OpSendOnly)).WithPSN(7).WithDETH(0xdeadbeef, 0x654321)},
		{"ACK", "1100ffff0000000000000007" + "1f123456", Ack(7, 0x123456)},
		{"ACK with credits", "1100ffff0000000000000007" + "05123456", Ack(7, 0x123456).WithCredits(5)},
		{"RNR", "1100ffff0000000000000007" + "2e123456", RNR(7, 14, 0x123456)},
		{"NAK", "1100ffff0000000000000007" + "62123456", Nak(7, NakRemoteAccess, 0x123456)},
		{"reserved syndrome", "1100ffff0000000000000007" + "85123456", Ack(7, 0x123456).WithSyndrome(0x85)},
		{"ATOMIC_ACK", "1200ffff0000000000000007" + "1f123456" + "0102030405060708", AtomicAck(7, 0x123456, 0x0102030405060708)},
		{"READ_RESPONSE_MIDDLE", "0e00ffff0000000000000007" + "41424344", New(OpReadResponseMiddle, 7, []byte("ABCD"))},
		{"SEND_LAST_INV", "1600ffff0000000000000007" + "99aabbcc" + "41424344", New(OpSendLastInv, 7, []byte("ABCD")).WithIETH(0x99aabbcc)},
		{"CNP", "8100ffff4000001100000000" + "00000000000000000000000000000000", CNP().To(0x11)},
		{"own body", "0a00ffff0000000000000007" + "0102", WriteOnly(7, reth, []byte("x")).WithBody([]byte{1, 2})},
		{"reserved opcode", "1800ffff0000000000000007" + "41424344", Op(0x18).WithPSN(7).WithPayload([]byte("ABCD"))},
		{"header that the opcode has not", "0400ffff0000000000000007" + "01020304", SendOnly(7, nil).WithImm(0x01020304)},
		{"pad of ones", "0430ffff0000000000000007" + "41ffffff", SendOnly(7, []byte("A")).WithPad([]byte{0xff, 0xff, 0xff})},
		{"no pad", "0400ffff0000000000000007" + "4142434445", SendOnly(7, []byte("ABCDE")).WithPad([]byte{})},
	}
	for _, c := range cases {
		b := c.p.Build()
		if got := hex.EncodeToString(c.p.BodyBytes()); got != c.want[24:] {
			t.Errorf("%s: body %s, want %s", c.name, got, c.want[24:])
		}
		if got := hex.EncodeToString(b[28 : len(b)-4]); got != c.want {
			t.Errorf("%s:\n%s, want\n%s", c.name, got, c.want)
		}
	}
}

func TestBuildPanicsOnValueThatDoesNotFit(t *testing.T) {
	defer func() {
		if got := recover(); got != "BTH.DestQP: 0x1000000 does not fit 24 bits" {
			t.Errorf("panic %v", got)
		}
	}()
	SendOnly(1, nil).To(1 << 24).Build()
}

func TestMessagesInPackets(t *testing.T) {
	data := make([]byte, 2500)
	for i := range data {
		data[i] = byte(i)
	}
	lines := func(ps []Packet) (s []string) {
		for _, p := range ps {
			s = append(s, p.String())
		}
		return s
	}
	for name, c := range map[string]struct{ got, want []string }{
		"SEND": {lines(Send(0xffffff, data, 1024)), []string{
			"SEND_FIRST psn 16777215 1024 B", "SEND_MIDDLE psn 0 1024 B", "SEND_LAST psn 1 AckReq 452 B",
		}},
		"short SEND": {lines(Send(5, data[:1024], 1024)), []string{"SEND_ONLY psn 5 AckReq 1024 B"}},
		"empty SEND": {lines(Send(5, []byte{}, 1024)), []string{"SEND_ONLY psn 5 AckReq 0 B"}},
		"WRITE": {lines(Write(5, At(4096, 9, 0), data[:1025], 1024)), []string{
			"WRITE_FIRST psn 5 va 0x1000 rkey 0x9 len 1025 1024 B", "WRITE_LAST psn 6 AckReq 1 B",
		}},
		"READ": {lines(ReadResponses(5, 3, data, 1024)), []string{
			"READ_RESPONSE_FIRST psn 5 msn 3 1024 B", "READ_RESPONSE_MIDDLE psn 6 1024 B", "READ_RESPONSE_LAST psn 7 msn 3 452 B",
		}},
	} {
		if len(c.got) != len(c.want) {
			t.Errorf("%s: %q, want %q", name, c.got, c.want)
			continue
		}
		for i := range c.got {
			if c.got[i] != c.want[i] {
				t.Errorf("%s: packet %d is %q, want %q", name, i, c.got[i], c.want[i])
			}
		}
	}
	for n, want := range map[int]int{0: 1, 1: 1, 1024: 1, 1025: 2, 2500: 3} {
		if got := Packets(n, 1024); got != want {
			t.Errorf("%d bytes take %d packets, want %d", n, got, want)
		}
	}
}

// TestFieldsDoNotOverlap sets one bit at a time. It belongs to one field, or to none if it is
// reserved.
func TestFieldsDoNotOverlap(t *testing.T) {
	whole := []any{BTH{}, RETH{}, AtomicETH{}, AtomicAckETH{}, AETH{}, DETH{}, ImmDt{}, IETH{}, XRCETH{}, RDETH{}, FETH{}, MAD{}, LAP{}, RTU{}, DREP{}}
	parts := []any{REQ{}, MRA{}, REJ{}, REP{}, DREQ{}, SIDRREQ{}, SIDRREP{}, APR{}}
	for i, h := range append(whole, parts...) {
		typ := reflect.TypeOf(h)
		size := len(packet.AppendFields(nil, h))
		zeros := reflect.New(typ)
		if _, err := packet.ParseFields(make([]byte, size), zeros.Interface()); err != nil {
			t.Fatal(err)
		}
		for bit := range 8 * size {
			b := make([]byte, size)
			b[bit/8] = 0x80 >> (bit % 8)
			v := reflect.New(typ)
			if _, err := packet.ParseFields(b, v.Interface()); err != nil {
				t.Fatal(err)
			}
			var owners []string
			for f := range typ.NumField() {
				if typ.Field(f).IsExported() && !reflect.DeepEqual(v.Elem().Field(f).Interface(), zeros.Elem().Field(f).Interface()) {
					owners = append(owners, typ.Field(f).Name)
				}
			}
			if len(owners) > 1 || len(owners) == 0 && i < len(whole) {
				t.Errorf("%s: bit %d of byte %d belongs to %q", typ.Name(), bit%8, bit/8, owners)
			}
			if got := packet.AppendFields(nil, v.Interface()); len(owners) == 1 && !bytes.Equal(got, b) {
				t.Errorf("%s: bit %d of byte %d is encoded as %x", typ.Name(), bit%8, bit/8, got)
			}
		}
	}
}

// Linux wrote these GRH areas before received datagrams.
func TestGRH(t *testing.T) {
	four := append(make([]byte, 20), unhex("4500003800004000401126100a4d00010a4d000b")...)
	h, err := ParseGRH(append(four, "ABCD"...), 4)
	if err != nil || h.Src != netip.MustParseAddr("10.77.0.1") || h.Dst != netip.MustParseAddr("10.77.0.11") || *h.HopLimit != 64 || *h.Length != 56 {
		t.Errorf("IPv4: %+v, %v", h, err)
	}
	six := unhex("6007b52000241140" + "fd770000000000000000000000000001" + "fd770000000000000000000000000011")
	h, err = ParseGRH(six, 6)
	if err != nil || h.Src != netip.MustParseAddr("fd77::1") || *h.FlowLabel != 0x7b520 || *h.HopLimit != 64 {
		t.Errorf("IPv6: %+v, %v", h, err)
	}
	for name, c := range map[string]struct {
		area   []byte
		family int
	}{"IPv4 as IPv6": {four, 6}, "IPv6 as IPv4": {six, 4}, "cut": {six[:39], 6}, "IPv4 first": {append(four[20:], four[:20]...), 6}, "zeros": {make([]byte, 40), 4}} {
		if _, err := ParseGRH(c.area, c.family); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
