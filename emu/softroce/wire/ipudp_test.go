package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"
)

// ackDatagram4 and ackDatagram6 are golden packets: the kernel's RC ACK.
const (
	ackDatagram4 = "45000030953e4000401190ce0a4d000b0a4d000c" + "c93f12b7001c0000" +
		"1100ffff0000001f004bcf5b1f000001d3517b4a"
	ackDatagram6 = "62000000001c1140fd770000000000000000000000000011fd770000000000000000000000000001" +
		"c33412b7001c0000" + "1100ffff00100001000000641f000001b75794b0"
)

func TestIPUDPGoldenBytes(t *testing.T) {
	for _, tc := range []struct {
		bytes string
		want  IPUDP
	}{
		{ackDatagram4, ip11to12(0xc93f, 0x953e)},
		{ackDatagram6, ip6(0xc334)},
	} {
		golden := fromHex(t, tc.bytes)
		h, payload, err := ParseIPUDP(append(golden, "Ethernet pad"...))
		if err != nil {
			t.Fatal(err)
		}
		if h != tc.want {
			t.Errorf("ParseIPUDP:\n got %+v\nwant %+v", h, tc.want)
		}
		if len(payload) != 20 || cap(payload) != 20 || payload[0] != 0x11 {
			t.Errorf("payload %x of capacity %d, want the 20 bytes of an ACK", payload, cap(payload))
		}
		if got := tc.want.Append([]byte("head"), payload); !bytes.Equal(got[4:], golden) {
			t.Errorf("Append = %x, want %x", got[4:], golden)
		}
	}
}

func TestIPUDPFieldsReachTheWire(t *testing.T) {
	for _, h := range []IPUDP{
		{
			Src: netip.MustParseAddrPort("1.2.3.4:1"), Dst: netip.MustParseAddrPort("5.6.7.8:4791"),
			TClass: 0x6b, HopLimit: 7, ID: 0xffff, UDPChecksum: 0x1234,
		},
		{
			Src: netip.MustParseAddrPort("[2001:db8::1]:65535"), Dst: netip.MustParseAddrPort("[2001:db8::2]:4791"),
			TClass: 0xab, HopLimit: 255, FlowLabel: 0xfffff, UDPChecksum: 0xfffe,
		},
	} {
		got, payload, err := ParseIPUDP(h.Append(nil, []byte("payload")))
		if err != nil || got != h || string(payload) != "payload" {
			t.Errorf("round trip:\n got %+v %q %v\nwant %+v", got, payload, err, h)
		}
	}
}

// corrupt returns golden after edit, with the IPv4 checksum made good again.
func corrupt(golden []byte, edit func(b []byte)) []byte {
	b := bytes.Clone(golden)
	edit(b)
	if b[0]>>4 == 4 {
		b[10], b[11] = 0, 0
		binary.BigEndian.PutUint16(b[10:], ^onesSum(b[:IPv4HeaderLen]))
	}
	return b
}

func TestIPUDPErrors(t *testing.T) {
	v4, v6 := fromHex(t, ackDatagram4), fromHex(t, ackDatagram6)
	for _, tc := range []struct {
		name   string
		golden []byte
		edit   func(b []byte)
		want   error
	}{
		{"version 5", v4, func(b []byte) { b[0] = 0x55 }, ErrIPVersion},
		{"options", v4, func(b []byte) { b[0] = 0x46 }, ErrIPOptions},
		{"header of four words", v4, func(b []byte) { b[0] = 0x44 }, ErrIPLength},
		{"total length beyond the packet", v4, func(b []byte) { b[3]++ }, ErrIPLength},
		{"total length within the IP header", v4, func(b []byte) { b[3] = 19 }, ErrIPLength},
		{"total length within the UDP header", v4, func(b []byte) { b[3] = 27 }, ErrUDPLength},
		{"total length short of the UDP length", v4, func(b []byte) { b[3]-- }, ErrUDPLength},
		{"may be fragmented", v4, func(b []byte) { b[6] = 0 }, ErrFragment},
		{"more fragments", v4, func(b []byte) { b[6] = 0x60 }, ErrFragment},
		{"fragment offset", v4, func(b []byte) { b[7] = 1 }, ErrFragment},
		{"reserved flag", v4, func(b []byte) { b[6] = 0xc0 }, ErrFragment},
		{"TCP", v4, func(b []byte) { b[9] = 6 }, ErrNotUDP},
		{"UDP length beyond the IP payload", v4, func(b []byte) { b[25]++ }, ErrUDPLength},
		{"UDP length short of the IP payload", v4, func(b []byte) { b[25]-- }, ErrUDPLength},
		{"port 4790", v4, func(b []byte) { b[23]-- }, ErrNotRoCEPort},

		{"IPv6 length beyond the packet", v6, func(b []byte) { b[5]++ }, ErrIPLength},
		{"IPv6 length short of the UDP length", v6, func(b []byte) { b[5]-- }, ErrUDPLength},
		{"IPv6 length within the UDP header", v6, func(b []byte) { b[5] = 7 }, ErrUDPLength},
		{"IPv6 fragment header", v6, func(b []byte) { b[6] = 44 }, ErrNotUDP},
		{"IPv6 UDP length", v6, func(b []byte) { b[45]++ }, ErrUDPLength},
		{"IPv6 port 4790", v6, func(b []byte) { b[43]-- }, ErrNotRoCEPort},
		{"IPv4-mapped source", v6, func(b []byte) { copy(b[8:], "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff") }, ErrIPMapped},
		{"IPv4-mapped destination", v6, func(b []byte) { copy(b[24:], "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff") }, ErrIPMapped},
	} {
		h, payload, err := ParseIPUDP(corrupt(tc.golden, tc.edit))
		if !errors.Is(err, tc.want) || payload != nil {
			t.Errorf("%s: %+v, %x, %v; want %v", tc.name, h, payload, err, tc.want)
		}
	}

	v4[8]-- // as a router that forgets the checksum would
	if _, _, err := ParseIPUDP(v4); !errors.Is(err, ErrIPChecksum) {
		t.Errorf("wrong checksum: %v", err)
	}

	long := IPUDP{Src: flows[2].Src, Dst: flows[2].Dst}
	b := append(long.Append(nil, make([]byte, MaxUDPPayload)), 0)
	binary.BigEndian.PutUint16(b[4:], UDPHeaderLen+MaxUDPPayload+1)
	binary.BigEndian.PutUint16(b[44:], UDPHeaderLen+MaxUDPPayload+1)
	if _, _, err := ParseIPUDP(b); !errors.Is(err, ErrIPLength) {
		t.Errorf("IPv6 payload beyond MaxUDPPayload: %v", err)
	}
}

func TestIPVersionMustMatchTheEtherType(t *testing.T) {
	if _, _, err := ParseIPv4(fromHex(t, ackDatagram6)); !errors.Is(err, ErrIPVersion) {
		t.Errorf("IPv6 packet under the EtherType of IPv4: %v", err)
	}
	if _, _, err := ParseIPv6(fromHex(t, ackDatagram4)); !errors.Is(err, ErrIPVersion) {
		t.Errorf("IPv4 packet under the EtherType of IPv6: %v", err)
	}
}

func TestIPUDPRejectsEveryPrefix(t *testing.T) {
	for _, s := range []string{ackDatagram4, ackDatagram6} {
		golden := fromHex(t, s)
		for n := range golden {
			_, _, err := ParseIPUDP(golden[:n])
			want := ErrIPLength
			if n < IPv4HeaderLen || golden[0]>>4 == 6 && n < IPv6HeaderLen {
				want = ErrShort
			}
			if !errors.Is(err, want) {
				t.Errorf("ParseIPUDP(%d bytes) = %v, want %v", n, err, want)
			}
		}
	}
}

func TestIPUDPAppendPanicsOnInvalidInput(t *testing.T) {
	for name, fn := range map[string]func(){
		"mixed families": func() { (&IPUDP{Src: flows[0].Src, Dst: flows[2].Dst}).Append(nil, nil) },
		"no addresses":   func() { new(IPUDP).Append(nil, nil) },
		"long payload":   func() { flows[0].Append(nil, make([]byte, MaxUDPPayload+1)) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			fn()
		}()
	}
}

func TestIPUDPDoesNotAllocate(t *testing.T) {
	payload, buf := make([]byte, 1024), make([]byte, 0, 2048)
	for _, h := range flows {
		whole := h.Append(nil, payload)
		if n := testing.AllocsPerRun(100, func() { buf = h.Append(buf[:0], payload) }); n != 0 {
			t.Errorf("Append allocates %v times", n)
		}
		if n := testing.AllocsPerRun(100, func() { _, _, _ = ParseIPUDP(whole) }); n != 0 {
			t.Errorf("ParseIPUDP allocates %v times", n)
		}
		if n := testing.AllocsPerRun(100, func() { _, _, _ = ParseIPUDP(whole[:30]) }); n != 0 {
			t.Errorf("failing ParseIPUDP allocates %v times", n)
		}
	}
}

func FuzzIPUDP(f *testing.F) {
	for i, h := range flows {
		p := samplePacket(MakeOpcode(TransportUD, OpSendOnly), i)
		f.Add(h.Append(nil, p.Append(nil)))
		f.Add(append(h.Append(nil, nil), 0, 0))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, payload, err := ParseIPUDP(b)
		if err != nil {
			if payload != nil {
				t.Fatalf("payload %x beside error %v", payload, err)
			}
			return
		}
		again := h.Append(nil, payload)
		if b[0]>>4 == 4 && b[10] == 0xFF && b[11] == 0xFF {
			b[10], b[11] = 0, 0 // the other way to write a checksum of zero
		}
		if len(again) > len(b) || !bytes.Equal(again, b[:len(again)]) {
			t.Fatalf("Parse then Append: %x -> %x", b, again)
		}
		if h.Dst.Port() != Port {
			t.Fatalf("accepted port %d", h.Dst.Port())
		}
	})
}
