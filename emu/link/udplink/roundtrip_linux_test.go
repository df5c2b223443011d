package udplink

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
)

func TestLinksShareLoopbackPort(t *testing.T) {
	var links []*Link
	for i := range byte(4) {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 77, i + 2}), 4791)
		links = append(links, openLink(t, Config{Local: addr}))
	}
	for i, from := range links {
		for j, to := range links {
			sendAll(t, from, link.Datagram{Dst: local(to), Payload: pattern(i*16+j, 64)})
			got := recvN(t, to, 1, 8)[0]
			if got.Src != local(from) || got.Dst != local(to) || !bytes.Equal(got.Payload, pattern(i*16+j, 64)) {
				t.Errorf("from %d to %d: received %v to %v", i, j, got.Src, got.Dst)
			}
		}
	}
	must.Fail(t, fmt.Sprintf("second link on %v", local(links[0])), must.Err(Open(Config{Local: local(links[0])})), unix.EADDRINUSE)
}

// The headers of received datagrams equal those that were sent.
func TestHeadersArrive(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			rx := openLink(t, Config{Local: netip.AddrPortFrom(f.addr, 0)})
			tx := openLink(t, Config{Local: netip.AddrPortFrom(f.addr, 0), TClass: 0x68, HopLimit: 17})
			if feat := tx.Features(); !feat.SeesHeader || !feat.SetsHeader || feat.SeesIPID || feat.SetsIPID || feat.SrcPort != local(tx).Port() {
				t.Errorf("features %+v", feat)
			}
			for _, tc := range []struct {
				tclass, hops, wantHops uint8
			}{
				{0, 0, 17}, // the socket's default is not 0
				{0x68, 0, 17},
				{0x68, 17, 17},
				{0x68 | link.ECT0, 0, 17},
				{link.ECT1, 1, 1},
				{link.CE, 255, 255},
				{0xff, 64, 64},
				{0x68, 0, 17},
			} {
				// Once alone and once in a batch: these use different system calls.
				d := link.Datagram{Dst: local(rx), TClass: tc.tclass, HopLimit: tc.hops, Payload: pattern(1, 100)}
				sendAll(t, tx, d)
				sendAll(t, tx, d, d)
				for _, got := range recvN(t, rx, 3, 8) {
					if got.TClass != tc.tclass || got.HopLimit != tc.wantHops || got.IPID != link.IPIDUnknown {
						t.Errorf("sent class %#x hops %d, got class %#x hops %d id %#x; want hops %d, id unknown",
							tc.tclass, tc.hops, got.TClass, got.HopLimit, got.IPID, tc.wantHops)
					}
				}
			}
		})
	}
}

func TestFlowLabelArrives(t *testing.T) {
	l := openLink(t, Config{Local: netip.MustParseAddrPort("[::1]:0")})
	for _, label := range []uint32{0, 1, 0xabcde, 0xfffff, 0} {
		d := link.Datagram{Dst: local(l), TClass: link.ECT0, FlowLabel: label, Payload: pattern(1, 8)}
		sendAll(t, l, d, d)
		for _, got := range recvN(t, l, 2, 2) {
			if got.FlowLabel != label || got.TClass != link.ECT0 {
				t.Errorf("sent flow label %#x, got %#x with class %#x", label, got.FlowLabel, got.TClass)
			}
		}
	}
}

// The same datagrams arrive with every combination of GSO and GRO, over loopback and over a
// veth pair that segments in software.
func TestOffloadsDoNotChangeDatagrams(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var want []link.Datagram
	for i := range 300 {
		size := []int{64, 64, 1, 1000, 1000, 1000, 1400, 0, rng.IntN(1400)}[rng.IntN(9)]
		d := link.Datagram{Payload: pattern(i, size), TClass: uint8(rng.IntN(2)) * link.ECT0}
		for range 1 + rng.IntN(5) {
			want = append(want, d)
		}
	}
	for _, gso := range []Offload{OffloadOff, OffloadOn} {
		for _, gro := range []Offload{OffloadOff, OffloadOn} {
			for _, f := range families {
				t.Run("loopback/"+f.name+"/gso "+gso.String()+"/gro "+gro.String(), func(t *testing.T) {
					tx := openLink(t, Config{Local: netip.AddrPortFrom(f.addr, 0), GSO: gso, PatchIPID: noPatch})
					rx := openLink(t, Config{Local: netip.AddrPortFrom(f.addr, 0), GRO: gro})
					exchange(t, tx, rx, want, gso, gro)
				})
				t.Run("wire/"+f.name+"/gso "+gso.String()+"/gro "+gro.String(), func(t *testing.T) {
					a, b := testutil.HostPair(t, 1500)
					must.Do(t, a.DisableGSO())
					tx := openIn(t, a, Config{Local: a.Addr(f.addr.Is6(), 4791), GSO: gso, PatchIPID: noPatch})
					rx := openIn(t, b, Config{Local: b.Addr(f.addr.Is6(), 4791), GRO: gro})
					exchange(t, tx, rx, want, gso, OffloadOff)
				})
			}
		}
	}
}

func exchange(t *testing.T, tx, rx *Link, want []link.Datagram, gso, gro Offload) {
	t.Helper()
	sendAll(t, tx, link.Datagram{Dst: local(rx), Payload: []byte("resolve the neighbour")})
	recvN(t, rx, 1, 1)
	want = slices.Clone(want)
	for i := range want {
		want[i].Dst = local(rx)
	}
	var got []link.Datagram
	for i := 0; i < len(want); i += 100 {
		chunk := want[i:min(i+100, len(want))]
		sendAll(t, tx, chunk...)
		got = append(got, recvN(t, rx, len(chunk), 1+i%37)...)
	}
	must.Do(t, samePayloads(got, want))
	for i := range got {
		if got[i].TClass != want[i].TClass || got[i].Src != local(tx) || got[i].Dst != local(rx) {
			t.Fatalf("datagram %d: class %#x from %v to %v", i, got[i].TClass, got[i].Src, got[i].Dst)
		}
	}
	if n := tx.Stats().GSOPackets; (n > 0) != (gso == OffloadOn) {
		t.Errorf("GSO %v: %d super-packets sent", gso, n)
	}
	if n := rx.Stats().GROPackets; (n > 0) != (gro == OffloadOn && gso == OffloadOn) {
		t.Errorf("GSO %v, GRO %v: %d super-packets received", gso, gro, n)
	}
	if s := tx.Stats(); s.SentDatagrams != uint64(len(want)+1) || s.Lost() != 0 || s.GSORetries != 0 {
		t.Errorf("sender counted %+v", s)
	}
	if s := rx.Stats(); s.RecvDatagrams != uint64(len(want)+1) || s.KernelDrops != 0 {
		t.Errorf("receiver counted %+v", s)
	}
}

// Datagrams of a super-packet that do not fit into ds are returned by the next Recv.
func TestRestOfSuperPacketWaitsForNextRecv(t *testing.T) {
	l := openLink(t, Config{Local: netip.MustParseAddrPort("[::1]:0"), GSO: OffloadOn, GRO: OffloadOn})
	var want []link.Datagram
	for i := range 50 {
		want = append(want, link.Datagram{Dst: local(l), Payload: pattern(i, 1000)})
	}
	sendAll(t, l, want...)
	ds := make([]link.Datagram, 7)
	for i := 0; i < len(want); {
		if err := l.WaitReadable(-1); err != nil { // must not sleep: datagrams are left
			t.Fatal(err)
		}
		n, err := l.Recv(0, ds)
		if err != nil || n == 0 {
			t.Fatalf("Recv = %d, %v after %d of %d", n, err, i, len(want))
		}
		if err := samePayloads(ds[:n], want[i:i+n]); err != nil {
			t.Fatalf("from %d: %v", i, err)
		}
		i += n
	}
	if n, err := l.Recv(0, ds); n != 0 || err != nil {
		t.Errorf("last Recv = %d, %v", n, err)
	}
	if n, err := l.Recv(0, nil); n != 0 || err != nil {
		t.Errorf("Recv(nil) = %d, %v", n, err)
	}
	if s := l.Stats(); s.GSOPackets != 1 || s.GROPackets != 1 || s.SendCalls != 1 {
		t.Errorf("50 datagrams took %d calls, %d and %d super-packets; want 1 of each", s.SendCalls, s.GSOPackets, s.GROPackets)
	}
}

// OffloadAuto enables GRO at the first burst: it slows single datagrams down.
func TestGROIsEnabledAtFirstBurst(t *testing.T) {
	l := openLink(t, Config{Local: netip.MustParseAddrPort("[::1]:0"), GSO: OffloadOn})
	in := make([]link.Datagram, 64)
	exchange := func(n int) {
		sendAll(t, l, datagramsTo(l, n)...)
		recvN(t, l, n, 64)
		if k, err := l.Recv(0, in); k != 0 || err != nil {
			t.Fatalf("Recv = %d, %v", k, err)
		}
	}
	for range 100 {
		exchange(1)
		exchange(3)
	}
	if l.Info().GRO || l.Stats().GROPackets != 0 {
		t.Error("GRO is on without a burst")
	}
	for range 3 {
		exchange(60)
	}
	if s := l.Stats(); !l.Info().GRO || s.GROPackets != 2 {
		t.Errorf("GRO is %v; %d super-packets, want the 2 after the first burst", l.Info().GRO, s.GROPackets)
	}
}

func TestBatchSharesSystemCalls(t *testing.T) {
	l := openLink(t, Config{Local: netip.MustParseAddrPort("127.0.0.2:0"), GSO: OffloadOff, GRO: OffloadOff})
	want := make([]link.Datagram, 200)
	for i := range want {
		want[i] = link.Datagram{Dst: local(l), Payload: pattern(i, 32)}
	}
	n, err := l.Send(0, want)
	if n != len(want) || err != nil {
		t.Fatalf("Send = %d, %v", n, err)
	}
	must.Do(t, samePayloads(recvN(t, l, len(want), 64), want))
	if s := l.Stats(); s.SendCalls != 4 || s.RecvCalls-s.RecvEmptyCalls > 10 {
		t.Errorf("200 datagrams took %d calls to send and %d to receive", s.SendCalls, s.RecvCalls)
	}
}

func TestWildcardLinkUsesSourceOfDatagram(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			wild := netip.IPv4Unspecified()
			if f.addr.Is6() {
				wild = netip.IPv6Unspecified()
			}
			if _, err := Open(Config{Local: netip.AddrPortFrom(wild, 0)}); err == nil {
				t.Error("a wildcard link without MTU opened")
			}
			w := openLink(t, Config{Local: netip.AddrPortFrom(wild, 0), MTU: 1500})
			l := openLink(t, Config{Local: netip.AddrPortFrom(f.addr, 0)})
			at := netip.AddrPortFrom(f.addr, local(w).Port())
			sendAll(t, l, link.Datagram{Dst: at, Payload: []byte("ping")})
			got := recvN(t, w, 1, 4)[0]
			if got.Dst != at || got.Src != local(l) {
				t.Fatalf("ping received from %v to %v, want to %v", got.Src, got.Dst, at)
			}
			sendAll(t, w, link.Datagram{Src: got.Dst, Dst: got.Src, Payload: []byte("pong")})
			if got := recvN(t, l, 1, 4)[0]; got.Src != at {
				t.Errorf("pong received from %v, want %v", got.Src, at)
			}
		})
	}
}

// An IPv6 receiver accepts checksum 0 only if the socket allows it.
func TestZeroChecksumIsSentAndAccepted(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			l := openLink(t, Config{Local: netip.AddrPortFrom(f.addr, 0), NoChecksum: true, PatchIPID: noPatch})
			if l.Info().GSO {
				t.Error("GSO is on although the kernel refuses it without a checksum")
			}
			want := []link.Datagram{{Dst: local(l), Payload: pattern(1, 100)}, {Dst: local(l), Payload: pattern(2, 100)}}
			sendAll(t, l, want...)
			must.Do(t, samePayloads(recvN(t, l, 2, 2), want))
		})
	}
}
