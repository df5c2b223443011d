package packet

import (
	"bytes"
	"encoding/hex"
	"errors"
	"net/netip"
	"testing"
)

var macA, macB = MAC{2, 0, 0, 0, 0, 1}, MAC{2, 0, 0, 0, 0, 2}

func TestEthernet(t *testing.T) {
	h := Ethernet{Dst: macB, Src: macA, Type: EtherTypeIPv4}
	b := h.Append([]byte{9}, linux4)
	if want := "020000000002" + "020000000001" + "0800" + hex.EncodeToString(linux4); hex.EncodeToString(b[1:]) != want {
		t.Errorf("frame %x, want %s", b[1:], want)
	}
	for size, want := range map[int]int{1: 60, 45: 60, 46: 60, 47: 61} {
		if n := len(h.Append([]byte{9}, make([]byte, size))) - 1; n != want {
			t.Errorf("a frame with %d bytes has %d, want %d", size, n, want)
		}
	}
	if _, payload, err := ParseEthernet(b[1:15]); err != nil || len(payload) != 0 {
		t.Errorf("14 bytes: payload %x, %v", payload, err)
	}
	got, payload, err := ParseEthernet(b[1:])
	if err != nil || got != h || !bytes.Equal(payload, linux4) {
		t.Errorf("%+v %x %v", got, payload, err)
	}
	if _, _, err := ParseEthernet(b[1:14]); !errors.Is(err, ErrShort) {
		t.Errorf("13 bytes: %v", err)
	}
	if _, payload, err := ParseEthernet(Ethernet{Type: EtherTypeVLAN}.Append(nil, nil)); err == nil || len(payload) != 46 {
		t.Errorf("a frame with a VLAN tag: %d bytes of payload, %v", len(payload), err)
	}
	if macA.String() != "02:00:00:00:00:01" || Broadcast.String() != "ff:ff:ff:ff:ff:ff" {
		t.Errorf("%v %v", macA, Broadcast)
	}
	for group, want := range map[string]string{"239.1.2.3": "01:00:5e:01:02:03", "224.129.2.3": "01:00:5e:01:02:03", "ff02::1:ff12:3456": "33:33:ff:12:34:56"} {
		if got := MulticastMAC(netip.MustParseAddr(group)).String(); got != want {
			t.Errorf("%s maps to %s, want %s", group, got, want)
		}
	}
}

func TestARP(t *testing.T) {
	request := ARP{Op: ARPRequest, SenderMAC: macA, Sender: a4, Target: b4}
	b := request.Append(nil)
	if want := "0001080006040001" + "020000000001" + "0a4d000b" + "000000000000" + "0a4d000c"; hex.EncodeToString(b) != want {
		t.Errorf("%x, want %s", b, want)
	}
	got, err := ParseARP(append(b, make([]byte, 18)...))
	if err != nil || got != request {
		t.Errorf("%+v, %v", got, err)
	}
	odd := ARP{Op: 0x0102, Sender: a4, Target: b4}
	if got, err := ParseARP(odd.Append(nil)); err != nil || got != odd {
		t.Errorf("%+v, %v, want %+v", got, err, odd)
	}
	if got, want := request.Reply(macB), (ARP{ARPReply, macB, b4, macA, a4}); got != want {
		t.Errorf("reply %+v, want %+v", got, want)
	}
	for n := range b {
		if _, err := ParseARP(b[:n]); !errors.Is(err, ErrShort) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	b[0] = 7
	if _, err := ParseARP(b); err == nil {
		t.Error("an ARP packet of another medium is accepted")
	}
}

func TestNeighbor(t *testing.T) {
	group := netip.MustParseAddr("ff02::1:ff00:1")
	request := Neighbor{Type: NeighborSolicitation, Target: b6, MAC: macA}
	b := request.Append(nil, a6, group)
	if want := "6000000000203aff" + "fd770000000000000000000000000011" + "ff0200000000000000000001ff000001" + "8700"; hex.EncodeToString(b[:42]) != want {
		t.Errorf("%x, want %s", b, want)
	}
	h, got, err := ParseNeighbor(b)
	if err != nil || got != request {
		t.Fatalf("%+v, %v", got, err)
	}
	answer := got.Answer(nil, h, macB)
	ah, a, err := ParseNeighbor(answer)
	want := Neighbor{Type: NeighborAdvertisement, Solicited: true, Override: true, Target: b6, MAC: macB}
	if err != nil || a != want || ah.Dst != a6 || ah.Src != b6 {
		t.Errorf("%+v from %v to %v, %v", a, ah.Src, ah.Dst, err)
	}
	if answer[44] != 0x60 {
		t.Errorf("flags %#02x", answer[44])
	}

	// tshark accepts this checksum.
	want = Neighbor{Type: NeighborAdvertisement, Solicited: true, Override: true, Target: netip.MustParseAddr("fd00::2"), MAC: macB}
	if b := want.Append(nil, netip.MustParseAddr("fd00::2"), netip.MustParseAddr("fd00::1")); hex.EncodeToString(b[40:44]) != "88001c9a" {
		t.Errorf("type, code and checksum %x, want 88001c9a", b[40:44])
	}

	for i, n := range []Neighbor{{Router: true}, {Solicited: true}, {Override: true}} {
		n.Type, n.Target = NeighborAdvertisement, b6
		b := n.Append(nil, a6, b6)
		if _, got, err := ParseNeighbor(b); b[44] != 0x80>>i || got != n || err != nil {
			t.Errorf("%+v, flags %#02x, %v; want %+v", got, b[44], err, n)
		}
	}

	if option := hex.EncodeToString(b[64:]); option != "0101"+"020000000001" {
		t.Errorf("option %s, want that of the source", option)
	}
	message := func(flags byte, options ...byte) []byte {
		m := append(append([]byte{NeighborAdvertisement, 0, 0, 0, flags, 0, 0, 0}, make([]byte, 16)...), options...)
		sum := Checksum(pseudoHeader(a6, b6, ProtocolICMPv6, len(m)), m)
		m[2], m[3] = byte(sum>>8), byte(sum)
		return IP{Src: a6, Dst: b6, Protocol: new(uint8(ProtocolICMPv6)), HopLimit: new(uint8(255))}.Append(nil, m)
	}
	unknown := append([]byte{14, 2}, make([]byte, 14)...)
	if _, got, err := ParseNeighbor(message(0x1f, append(unknown, 2, 1, 2, 0, 0, 0, 0, 2)...)); err != nil || got.Router || got.Solicited || got.Override || got.MAC != macB {
		t.Errorf("reserved bits and an unknown option: %+v, %v", got, err)
	}
	if _, got, err := ParseNeighbor(message(0, 14, 1, 1, 1, 1, 1, 1, 1)); err != nil || got.MAC != (MAC{}) {
		t.Errorf("an unknown option: %+v, %v", got, err)
	}
	for _, options := range [][]byte{{2, 0, 0, 0, 0, 0, 0, 0}, {2, 2, 0, 0, 0, 0, 0, 0}} {
		if _, got, err := ParseNeighbor(message(0, options...)); err == nil {
			t.Errorf("option %x: %+v, and no error", options, got)
		}
	}

	// A duplicate address detection probe has no source address: all nodes get the answer.
	h, got, err = ParseNeighbor(Neighbor{Type: NeighborSolicitation, Target: b6}.Append(nil, netip.IPv6Unspecified(), group))
	if err != nil || got.MAC != (MAC{}) {
		t.Fatalf("%+v, %v", got, err)
	}
	ah, a, err = ParseNeighbor(got.Answer(nil, h, macB))
	if err != nil || a.Solicited || ah.Dst != netip.IPv6LinkLocalAllNodes() {
		t.Errorf("%+v to %v, %v", a, ah.Dst, err)
	}

	for i := 40; i < len(b); i++ {
		c := bytes.Clone(b)
		c[i] ^= 1
		if _, _, err := ParseNeighbor(c); err == nil {
			t.Errorf("byte %d changed: no error", i)
		}
		if _, _, err := ParseNeighbor(b[:i]); err == nil {
			t.Errorf("%d bytes: no error", i)
		}
	}
	icmp := new(uint8(ProtocolICMPv6))
	for _, other := range [][]byte{
		linux4, linux6, IP{Src: a4, Dst: b4, Protocol: icmp}.Append(nil, b[40:]), IP{Src: a6, Dst: b6}.Append(nil, b[40:]),
		IP{Src: a6, Dst: b6, Protocol: icmp}.Append(nil, nil), IP{Src: a6, Dst: b6, Protocol: icmp}.Append(nil, []byte{128}),
	} {
		if _, _, err := ParseNeighbor(other); !errors.Is(err, ErrNotNeighbor) {
			t.Errorf("not a neighbour message: %v", err)
		}
	}
}

func TestShortNeighborMessages(t *testing.T) {
	if _, _, err := ParseNeighbor(IP{Src: a6, Dst: b6, Protocol: new(uint8(ProtocolICMPv6))}.Append(nil, []byte{NeighborSolicitation})); !errors.Is(err, ErrShort) {
		t.Errorf("one byte: %v", err)
	}
}

// FuzzNeighbor: no input causes a panic, and a parsed message survives Append and Parse.
func FuzzNeighbor(f *testing.F) {
	f.Add(Neighbor{Type: NeighborSolicitation, Target: b6, MAC: macA}.Append(nil, a6, netip.MustParseAddr("ff02::1:ff00:1")))
	f.Add(Neighbor{Type: NeighborAdvertisement, Target: b6, MAC: macA, Override: true}.Append(nil, a6, b6))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = ParseARP(b)
		_, _, _ = ParseEthernet(b)
		h, n, err := ParseNeighbor(b)
		if err != nil {
			return
		}
		if _, again, err := ParseNeighbor(n.Append(nil, h.Src, h.Dst)); err != nil || n.Type == NeighborAdvertisement && again != n {
			t.Fatalf("%+v after Append and Parse is %+v, %v", n, again, err)
		}
	})
}
