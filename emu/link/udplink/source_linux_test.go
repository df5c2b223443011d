package udplink

import (
	"bytes"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
)

// openWithSourcePort opens a link with SeparateSourcePort.
func openWithSourcePort(t *testing.T, addr string) *Link {
	t.Helper()
	l := must.Get(Open(Config{Local: netip.MustParseAddrPort(addr), SeparateSourcePort: true, PatchIPID: func([]byte, uint16) {}}))(t)
	t.Cleanup(func() { l.Close() })
	return l
}

// exchangeOne sends one datagram and returns it as received.
func exchangeOne(t *testing.T, from, to *Link, payload string) link.Datagram {
	t.Helper()
	ds := []link.Datagram{{Dst: local(to), Payload: []byte(payload), TClass: 0, HopLimit: 0}}
	if n, err := from.Send(0, ds); n != 1 || err != nil {
		t.Fatalf("sent %d, %v", n, err)
	}
	got := make([]link.Datagram, 4)
	for range 1000 {
		must.Do(t, to.WaitReadable(1e9))
		if n, err := to.Recv(0, got); err != nil || n > 0 {
			if n != 1 || string(got[0].Payload) != payload {
				t.Fatalf("%d datagrams, %q, %v", n, got[0].Payload, err)
			}
			return got[0]
		}
	}
	t.Fatal("nothing arrived")
	return link.Datagram{}
}

func TestSeparateSourcePortIsTheOnlySource(t *testing.T) {
	a, b, c := openWithSourcePort(t, "[::1]:0"), openWithSourcePort(t, "[::1]:0"), openWithSourcePort(t, "[::1]:0")
	if i := a.Info(); i.Source.Port() == i.Local.Port() || i.Source.Port() == 0 || a.Features().SrcPort != i.Source.Port() {
		t.Fatalf("info %+v, features %+v", i, a.Features())
	}
	// Before and after it connects, to alternating peers, in batches and alone.
	for round := range 3 {
		for _, to := range []*Link{b, c, b} {
			for i := range connectAfter + 10 {
				d := exchangeOne(t, a, to, "x")
				if d.Src != a.Info().Source || d.Dst != local(to) {
					t.Fatalf("round %d, datagram %d: from %v to %v, want from %v", round, i, d.Src, d.Dst, a.Info().Source)
				}
			}
			if !a.source.usePeer {
				t.Fatal("the socket is not connected after many datagrams to one peer")
			}
			batch := []link.Datagram{{Dst: local(to), Payload: []byte("12")}, {Dst: local(to), Payload: []byte("12")}, {Dst: local(to), Payload: []byte("123")}}
			if n, err := a.Send(0, batch); n != 3 || err != nil {
				t.Fatal(n, err)
			}
			got := make([]link.Datagram, 1)
			for n := 0; n < 3; {
				k, err := to.Recv(0, got)
				if err != nil || k > 0 && got[0].Src != a.Info().Source {
					t.Fatalf("in a batch: %+v, %v", got[0], err)
				}
				n += k
			}
		}
	}
	if lost := a.Stats(); lost.Lost() != 0 || lost.SendFull != 0 {
		t.Errorf("stats %+v", lost)
	}
}

// A connected socket reports ECONNREFUSED, which loses no datagram to a new peer at the address.
func TestConnectedSourceSurvivesClosedPeer(t *testing.T) {
	a, b := openWithSourcePort(t, "[::1]:0"), openWithSourcePort(t, "[::1]:0")
	for range connectAfter + 1 {
		exchangeOne(t, a, b, "x")
	}
	addr := local(b)
	b.Close()
	ds := []link.Datagram{{Dst: addr, Payload: []byte("lost")}}
	for range 5 {
		if n, err := a.Send(0, ds); n != 1 || err != nil {
			t.Fatalf("sent %d, %v", n, err)
		}
	}
	back := must.Get(Open(Config{Local: addr}))(t)
	defer back.Close()
	for range 5 {
		exchangeOne(t, a, back, "again")
	}
}

func TestSeparateSourcePortIsIPv6Only(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "[::]:0"} {
		l := must.Get(Open(Config{Local: netip.MustParseAddrPort(addr), SeparateSourcePort: true, MTU: 1500}))(t)
		if i := l.Info(); i.Source != i.Local {
			t.Errorf("%s: sends from %v", addr, i.Source)
		}
		l.Close()
	}
}

func newReceiver() *receiver {
	r := new(receiver)
	r.init(Info{Local: netip.MustParseAddrPort("127.0.0.2:4791")}, false)
	r.dst = r.local
	return r
}

func TestSockaddrRoundTrip(t *testing.T) {
	for _, s := range []string{"127.0.0.9:4791", "[fd00::9]:4791", "[::]:0", "255.255.255.255:65535"} {
		want := netip.MustParseAddrPort(s)
		var sa sockaddr
		size := putSockaddr(&sa, want, 0xfffff, 3)
		if got := getSockaddr(&sa); got != want || (size == unix.SizeofSockaddrInet6) != want.Addr().Is6() {
			t.Errorf("%v became %v in %d bytes", want, got, size)
		}
	}
}

func TestSplitReturnsOriginalDatagrams(t *testing.T) {
	message := pattern(1, 1050)
	for _, tc := range []struct{ segment, size, want int }{
		{100, 1050, 11}, {100, 1000, 10}, {1050, 1050, 1}, {2000, 1050, 1}, {1, 3, 3}, {1, 0, 1},
	} {
		a := recvMeta{segment: tc.segment, tclass: 3, hopLimit: 9}
		var joined []byte
		n, off := 0, 0
		for first := true; first || off < tc.size; first = false {
			var ds [4]link.Datagram
			var k int
			k, off = a.split(ds[:], message[:tc.size], off)
			for _, d := range ds[:k] {
				joined = append(joined, d.Payload...)
				if len(d.Payload) > tc.segment || cap(d.Payload) != len(d.Payload) || d.TClass != 3 || d.HopLimit != 9 {
					t.Fatalf("segment %d: datagram of %d bytes, room for %d", tc.segment, len(d.Payload), cap(d.Payload))
				}
			}
			n += k
		}
		if n != tc.want || !bytes.Equal(joined, message[:tc.size]) {
			t.Errorf("%d bytes in segments of %d: %d datagrams, want %d", tc.size, tc.segment, n, tc.want)
		}
	}
}

// FuzzParse checks that no control message causes an out-of-bounds read or an endless loop.
func FuzzParse(f *testing.F) {
	var c control
	n := c.addInt(0, unix.IPPROTO_IP, unix.IP_TTL, 64)
	n = c.addInt(n, unix.IPPROTO_IP, unix.IP_TOS, 3)
	n = c.addInt(n, unix.SOL_UDP, unix.UDP_GRO, 100)
	n = c.addSource(n, netip.MustParseAddr("10.0.0.1"))
	f.Add(c.b[:n], 1000)
	n = c.addInt(0, unix.IPPROTO_IPV6, ipv6FlowInfo, 0x0fffffff)
	n = c.addSource(n, netip.MustParseAddr("fd00::1"))
	f.Add(c.b[:n], 0)
	f.Add(bytes.Repeat([]byte{0xff}, 40), 1)
	r := newReceiver()
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		size = max(0, size%slotBytes)
		k := copy(r.controls[0].b[:], b)
		r.headers[0].hdr.SetControllen(k)
		r.headers[0].n = uint32(size)
		r.parse(0, size)
		var ds [64]link.Datagram
		total := 0
		for off := 0; ; {
			n, end := r.meta.split(ds[:], r.slots[:size:size], off)
			if total += n; n == 0 || total > size+1 {
				t.Fatalf("%d bytes make %d datagrams of %d", size, total, r.meta.segment)
			}
			if off = end; off == size {
				break
			}
		}
	})
}

func TestParseReadsEveryControlMessage(t *testing.T) {
	r := newReceiver()
	c := &r.controls[1]
	n := c.addInt(0, unix.SOL_SOCKET, 0x7777, 1) // unknown: skipped
	n = c.addInt(n, unix.IPPROTO_IPV6, unix.IPV6_HOPLIMIT, 33)
	data, n := c.add(n, unix.IPPROTO_IPV6, ipv6FlowInfo, 4)
	copy(data, []byte{0x0a, 0xb1, 0x23, 0x45}) // class 0xab, label 0x12345
	n = c.addInt(n, unix.SOL_UDP, unix.UDP_GRO, 256)
	n = c.addSource(n, netip.MustParseAddr("fd00::1"))
	r.headers[1].hdr.SetControllen(n)
	putSockaddr(&r.names[1], peer6, 0, 0)
	r.parse(1, 1000)
	want := recvMeta{src: peer6, dst: netip.MustParseAddrPort("[fd00::1]:4791"), flowLabel: 0x12345, segment: 256, tclass: 0xab, hopLimit: 33}
	if r.meta != want {
		t.Errorf("parsed %+v, want %+v", r.meta, want)
	}
	r.headers[1].hdr.SetControllen(0)
	r.parse(1, 1000)
	if want := (recvMeta{src: peer6, dst: r.dst, segment: 1000}); r.meta != want {
		t.Errorf("without control messages parsed %+v, want %+v", r.meta, want)
	}
}
