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
	if n := len(h.Append(nil, []byte("x"))); n != 60 {
		t.Errorf("a short frame has %d bytes", n)
	}
	got, payload, err := ParseEthernet(b[1:])
	if err != nil || got != h || !bytes.Equal(payload, linux4) {
		t.Errorf("%+v %x %v", got, payload, err)
	}
	if _, _, err := ParseEthernet(b[1:14]); !errors.Is(err, ErrShort) {
		t.Errorf("13 bytes: %v", err)
	}
	if _, _, err := ParseEthernet(Ethernet{Type: EtherTypeVLAN}.Append(nil, nil)); err == nil {
		t.Error("a frame with a VLAN tag is accepted")
	}
	if macA.String() != "02:00:00:00:00:01" || Broadcast.String() != "ff:ff:ff:ff:ff:ff" {
		t.Errorf("%v %v", macA, Broadcast)
	}
	for group, want := range map[string]string{"239.1.2.3": "01:00:5e:01:02:03", "224.129.2.3": "01:00:5e:01:02:03", "ff02::1:ff00:11": "33:33:ff:00:00:11"} {
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
	for _, other := range [][]byte{linux4, linux6} {
		if _, _, err := ParseNeighbor(other); !errors.Is(err, ErrNotNeighbor) {
			t.Errorf("not a neighbour message: %v", err)
		}
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
