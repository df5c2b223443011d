package udplink

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/link"
)

var (
	peer4  = netip.MustParseAddrPort("127.0.0.9:4791")
	other4 = netip.MustParseAddrPort("127.0.0.10:4791")
	peer6  = netip.MustParseAddrPort("[fd00::9]:4791")
)

func newSender(mtu int, patchIPID func([]byte, uint16)) *sender {
	s := new(sender)
	s.init(Config{PatchIPID: patchIPID}, Info{Local: netip.MustParseAddrPort("127.0.0.2:4791"), MTU: mtu, GSO: true, HopLimit: 64}, 1)
	return s
}

// runs returns how many datagrams each packed message holds.
func (s *sender) runs() []int {
	var n []int
	for i := range s.used {
		n = append(n, s.messages[i].segments)
	}
	return n
}

func datagrams(sizes ...int) []link.Datagram {
	var ds []link.Datagram
	for i, n := range sizes {
		ds = append(ds, link.Datagram{Dst: peer4, Payload: pattern(i, n)})
	}
	return ds
}

func TestPackBuildsSuperPackets(t *testing.T) {
	change := func(i int, f func(*link.Datagram)) []link.Datagram {
		ds := datagrams(100, 100, 100, 100)
		f(&ds[i])
		return ds
	}
	for _, tc := range []struct {
		name string
		ds   []link.Datagram
		want []int
	}{
		{"one", datagrams(100), []int{1}},
		{"equal", datagrams(100, 100, 100), []int{3}},
		{"shorter last", datagrams(100, 100, 40), []int{3}},
		{"shorter in the middle ends a run", datagrams(100, 40, 100, 100), []int{2, 2}},
		{"longer begins a run", datagrams(40, 100, 100), []int{1, 2}},
		{"empty is never joined", datagrams(100, 0, 0, 100), []int{1, 1, 1, 1}},
		{"other destination", change(2, func(d *link.Datagram) { d.Dst = other4 }), []int{2, 1, 1}},
		{"other traffic class", change(2, func(d *link.Datagram) { d.TClass = link.CE }), []int{2, 1, 1}},
		{"other hop limit", change(2, func(d *link.Datagram) { d.HopLimit = 3 }), []int{2, 1, 1}},
		{"other source is ignored", change(2, func(d *link.Datagram) { d.Src = other4 }), []int{4}},
		{"at most 64", datagrams(slices.Repeat([]int{10}, 65)...), []int{64, 1}},
		{"at most 65507 bytes", datagrams(slices.Repeat([]int{8192}, 9)...), []int{7, 2}},
		{"full to the byte", datagrams(32753, 32753, 1, 1), []int{3, 1}},
		{"one byte too many", datagrams(32754, 32754), []int{1, 1}},
	} {
		s := newSender(maxIPv4, noPatch)
		if n := s.pack(tc.ds, 0); n != len(tc.ds) {
			t.Errorf("%s: packed %d of %d", tc.name, n, len(tc.ds))
		}
		if got := s.runs(); !slices.Equal(got, tc.want) {
			t.Errorf("%s: runs %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestPackSeparatesSourcesOfWildcardLink(t *testing.T) {
	s := newSender(1500, noPatch)
	s.wildcard = true
	ds := datagrams(10, 10, 10)
	ds[1].Src, ds[2].Src = other4, other4
	if s.pack(ds, 0); !slices.Equal(s.runs(), []int{1, 2}) {
		t.Errorf("runs %v, want [1 2]", s.runs())
	}
}

func TestPackSendsFirstDatagramsSingly(t *testing.T) {
	s := newSender(1500, noPatch)
	if s.pack(datagrams(10, 10, 10, 10, 10), 3); !slices.Equal(s.runs(), []int{1, 1, 1, 2}) {
		t.Errorf("runs %v, want [1 1 1 2]", s.runs())
	}
	s.gso = false
	if s.pack(datagrams(10, 10), 0); !slices.Equal(s.runs(), []int{1, 1}) {
		t.Errorf("without GSO: runs %v, want [1 1]", s.runs())
	}
}

func TestPackStopsBeforeUnsendableDatagram(t *testing.T) {
	s := newSender(1000, noPatch)
	ds := datagrams(972, 972, 973, 972)
	if n := s.pack(ds, 0); n != 2 {
		t.Errorf("packed %d, want the 2 before the one that exceeds the MTU", n)
	}
	if n := s.pack(ds[2:], 0); n != 0 || s.checkSendable(&ds[2]) != unix.EMSGSIZE {
		t.Errorf("packed %d, unsendable %v; want 0, EMSGSIZE", n, s.checkSendable(&ds[2]))
	}
	for _, dst := range []netip.AddrPort{peer6, {}} {
		if errno := s.checkSendable(&link.Datagram{Dst: dst}); errno != unix.EAFNOSUPPORT {
			t.Errorf("to %v over IPv4: %v, want EAFNOSUPPORT", dst, errno)
		}
	}
	mapped := netip.AddrPortFrom(netip.AddrFrom16(peer4.Addr().As16()), 4791)
	if errno := s.checkSendable(&link.Datagram{Dst: mapped}); errno != 0 {
		t.Errorf("to %v over IPv4: %v, want none", mapped, errno)
	}
}

func TestPackBoundsBytesOfOneCall(t *testing.T) {
	s := newSender(maxIPv4, noPatch)
	s.gso = false
	if n := s.pack(datagrams(slices.Repeat([]int{1}, 2*maxMessages)...), 0); n != maxMessages {
		t.Errorf("packed %d messages, want %d", n, maxMessages)
	}
	s.gso = true
	big := datagrams(slices.Repeat([]int{60000}, 20)...)
	if n := s.pack(big, 0); n*60000 > maxCallBytes+maxIPv4 || n == 0 {
		t.Errorf("packed %d datagrams of 60000 bytes into one call", n)
	}
	var scattered []link.Datagram
	for range 2 * maxIovecs / maxSegments {
		// Two adjacent payloads prevent a copy of the rest.
		arena := pattern(1, 20)
		run := []link.Datagram{{Dst: peer4, Payload: arena[:10]}, {Dst: peer4, Payload: arena[10:]}}
		for range maxSegments - 2 {
			run = append(run, link.Datagram{Dst: peer4, Payload: make([]byte, 20)[:10]})
		}
		scattered = append(scattered, run...)
	}
	s.pack(scattered, 0)
	pieces := 0
	for i := range s.used {
		pieces += int(s.headers[i].hdr.Iovlen)
	}
	if pieces != maxIovecs {
		t.Errorf("%d pieces of payload in one call, want %d", pieces, maxIovecs)
	}
}

func TestUnpatchUndoesPatchIPID(t *testing.T) {
	ids := map[int][]uint16{}
	fix := func(p []byte, id uint16) {
		ids[int(p[0])] = append(ids[int(p[0])], id)
		p[1] ^= byte(id)
	}
	s := newSender(1500, fix)
	var ds []link.Datagram
	for i := range 5 {
		ds = append(ds, link.Datagram{Dst: peer4, Payload: []byte{byte(i), 0, 0}})
	}
	ds[3].Dst, ds[4].Dst = other4, other4
	s.pack(ds, 0)
	for i, want := range []byte{0, 1, 2, 0, 1} {
		if ds[i].Payload[1] != want {
			t.Errorf("datagram %d is patched for identification %d, want %d", i, ds[i].Payload[1], want)
		}
	}
	s.unpatchFrom(ds, 1) // the first message was sent
	for i, want := range []byte{0, 1, 2, 0, 0} {
		if ds[i].Payload[1] != want {
			t.Errorf("after unpatch datagram %d is patched for identification %d, want %d", i, ds[i].Payload[1], want)
		}
	}
	if want := []uint16{1, 1}; !slices.Equal(ids[4], want) || len(ids[0]) != 0 || len(ids[3]) != 0 {
		t.Errorf("PatchIPID was called with %v, want twice 1 for datagram 4, never for 0 and 3", ids)
	}
}

func TestIPv6NeedsNoPatchIPID(t *testing.T) {
	s := new(sender)
	s.init(Config{PatchIPID: func([]byte, uint16) { t.Error("PatchIPID called over IPv6") }},
		Info{Local: netip.MustParseAddrPort("[::1]:4791"), MTU: 1500, GSO: true}, 1)
	ds := datagrams(10, 10)
	ds[0].Dst, ds[1].Dst = peer6, peer6
	if s.pack(ds, 0); !slices.Equal(s.runs(), []int{2}) {
		t.Errorf("runs %v, want [2]", s.runs())
	}
}

func TestGatherJoinsAdjacentAndSmallPayloads(t *testing.T) {
	arena := pattern(1, 3000)
	s := newSender(1500, noPatch)
	apart := func(n int) link.Datagram { return link.Datagram{Dst: peer4, Payload: pattern(2, 2*n)[:n]} }
	part := func(from, to int) link.Datagram { return link.Datagram{Dst: peer4, Payload: arena[from:to]} }
	for _, tc := range []struct {
		name string
		ds   []link.Datagram
		want int
	}{
		{"adjacent", []link.Datagram{part(0, 1000), part(1000, 2000), part(2000, 3000)}, 1},
		{"another between adjacent ones", []link.Datagram{part(0, 1000), part(1000, 2000), apart(1000), part(2000, 3000)}, 3},
		{"small and apart", []link.Datagram{apart(maxCopyBytes), apart(maxCopyBytes), apart(maxCopyBytes)}, 1},
		{"large and apart", []link.Datagram{apart(maxCopyBytes + 1), apart(maxCopyBytes + 1), apart(maxCopyBytes + 1)}, 3},
	} {
		s.pack(tc.ds, 0)
		if n := int(s.headers[0].hdr.Iovlen); s.used != 1 || n != tc.want {
			t.Errorf("%s: %d messages, the first of %d pieces; want 1 of %d", tc.name, s.used, n, tc.want)
		}
		checkMessage(t, &s.messages[0], s.wire(0), tc.ds)
	}
}

// wire returns the bytes that the kernel would read for message i.
func (s *sender) wire(i int) []byte {
	h := &s.headers[i].hdr
	var b []byte
	for _, v := range unsafe.Slice(h.Iov, int(h.Iovlen)) {
		b = append(b, unsafe.Slice(v.Base, int(v.Len))...)
	}
	return b
}

func FuzzPackLosesNothing(f *testing.F) {
	f.Add([]byte{3, 3, 3, 1, 0, 9, 9, 2}, uint8(0))
	f.Add(bytes.Repeat([]byte{200}, 90), uint8(70))
	s := newSender(1500, noPatch)
	f.Fuzz(func(t *testing.T, shape []byte, singles uint8) {
		var ds []link.Datagram
		for i, b := range shape {
			d := link.Datagram{Dst: peer4, Payload: pattern(i, int(b&0x3f)*20)}
			if b&0x40 != 0 {
				d.TClass = link.ECT0
			}
			if b&0x80 != 0 {
				d.Dst = other4
			}
			ds = append(ds, d)
		}
		packed := 0
		for packed < len(ds) {
			n := s.pack(ds[packed:], int(singles))
			if n == 0 {
				t.Fatalf("packed none of %d sendable datagrams", len(ds)-packed)
			}
			at := packed
			for i := range s.used {
				m := &s.messages[i]
				segments := ds[at : at+m.segments]
				if m.first != at-packed || (m.segments > 1 && m.first < int(singles)) {
					t.Fatalf("message %d begins with datagram %d, want %d; the first %d are sent alone", i, m.first, at-packed, singles)
				}
				checkMessage(t, m, s.wire(i), segments)
				at += m.segments
			}
			if at != packed+n {
				t.Fatalf("messages hold %d datagrams, pack returned %d", at-packed, n)
			}
			packed = at
		}
	})
}

// checkMessage segments wire as the kernel would and compares it with ds.
func checkMessage(t *testing.T, m *message, wire []byte, ds []link.Datagram) {
	t.Helper()
	for k, d := range ds {
		size := len(wire)
		if m.header.segment != 0 {
			size = min(size, int(m.header.segment))
		}
		if !bytes.Equal(wire[:size], d.Payload) || d.Dst != m.header.dst || d.TClass != m.header.tclass {
			t.Fatalf("datagram %d of a message would be sent changed", k)
		}
		wire = wire[size:]
	}
	if len(wire) != 0 {
		t.Fatalf("%d bytes after the last datagram", len(wire))
	}
}
