package udplink

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
)

func TestDatagramBeyondMTUIsCountedAsLost(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			l := openLink(t, Config{Local: netip.AddrPortFrom(f.addr, 0), MTU: 1500, PatchIPID: noPatch})
			fits := 1500 - headerLen(f.addr.Is6())
			ds := datagrams(fits, fits+1, fits, fits+1)
			for i := range ds {
				ds[i].Dst = local(l)
			}
			if n, err := l.Send(0, ds); n != 4 || err != nil {
				t.Fatalf("Send = %d, %v; want all 4 taken", n, err)
			}
			must.Do(t, samePayloads(recvN(t, l, 2, 4), []link.Datagram{ds[0], ds[2]}))
			if s := l.Stats(); s.LostTooBig != 2 || s.Lost() != 2 || s.SentDatagrams != 2 {
				t.Errorf("counted %+v", s)
			}
		})
	}
}

// The kernel refuses a datagram of each batch; the next one arrives.
func TestLostDatagramsAreCountedByReason(t *testing.T) {
	a, b := testutil.HostPair(t, 1500)
	for _, v6 := range []bool{false, true} {
		// The configured MTU exceeds that of the wire.
		tx := openIn(t, a, Config{Local: a.Addr(v6, 4791), MTU: 9000, PatchIPID: noPatch})
		rx := openIn(t, b, Config{Local: b.Addr(v6, 4791)})
		good := link.Datagram{Dst: local(rx), Payload: pattern(1, 100)}
		unreachable, denied := "192.0.2.1:4791", "10.77.0.255:4791"
		if v6 {
			unreachable, denied = "[2001:db8::1]:4791", ""
		}
		for _, tc := range []struct {
			name string
			dst  string
			size int
			got  func(Stats) uint64
		}{
			{"no route", unreachable, 10, func(s Stats) uint64 { return s.LostUnreachable }},
			{"broadcast is forbidden", denied, 10, func(s Stats) uint64 { return s.LostDenied }},
			{"larger than the wire", local(rx).String(), 8000, func(s Stats) uint64 { return s.LostTooBig }},
			{"port 0", netip.AddrPortFrom(local(rx).Addr(), 0).String(), 10, func(s Stats) uint64 { return s.LostOther }},
		} {
			if tc.dst == "" {
				continue // IPv6 has no broadcast
			}
			t.Run(local(tx).Addr().String()+"/"+tc.name, func(t *testing.T) {
				before := tx.Stats()
				bad := link.Datagram{Dst: netip.MustParseAddrPort(tc.dst), Payload: pattern(2, tc.size)}
				// Alone, in a batch, and as a super-packet of three.
				for _, ds := range [][]link.Datagram{{bad}, {good, bad, good}, {bad, bad, bad, good}} {
					if n, err := tx.Send(0, ds); n != len(ds) || err != nil {
						t.Fatalf("Send = %d, %v; want %d taken", n, err, len(ds))
					}
				}
				recvN(t, rx, 3, 8)
				after := tx.Stats()
				if n := tc.got(after) - tc.got(before); n != 5 || after.Lost()-before.Lost() != 5 {
					t.Errorf("counted %d of 5 losses under this reason, %d in all: %+v", n, after.Lost()-before.Lost(), after)
				}
				if after.SentDatagrams-before.SentDatagrams != 3 {
					t.Errorf("counted %d sent, want 3", after.SentDatagrams-before.SentDatagrams)
				}
			})
		}
	}
}

// The kernel refuses GSO because the test disables checksums of the socket.
func TestRefusedSuperPacketIsSentAsSingleDatagrams(t *testing.T) {
	patched := 0
	l := openLink(t, Config{Local: netip.MustParseAddrPort("127.0.0.2:0"), GSO: OffloadOn, PatchIPID: func(p []byte, id uint16) { p[0] ^= byte(id); patched++ }})
	must.Do(t, unix.SetsockoptInt(l.fd, unix.SOL_SOCKET, unix.SO_NO_CHECK, 1))
	ds := datagrams(100, 100, 100, 100, 100)
	want := datagrams(100, 100, 100, 100, 100)
	for i := range ds {
		ds[i].Dst = local(l)
	}
	ds[0].Payload, want[0].Payload = pattern(0, 50), pattern(0, 50) // sent first, alone
	if n, err := l.Send(0, ds); n != 5 || err != nil {
		t.Fatalf("Send = %d, %v", n, err)
	}
	if err := samePayloads(recvN(t, l, 5, 8), want); err != nil {
		t.Errorf("sent with identification 0, so no payload may be changed: %v", err)
	}
	if s := l.Stats(); s.GSORetries != 1 || s.GSODisabled || s.SentDatagrams != 5 || s.Lost() != 0 {
		t.Errorf("counted %+v", s)
	}
	if patched != 6 {
		t.Errorf("PatchIPID was called %d times, want 3 to patch and 3 to undo", patched)
	}
}

func TestEIODisablesGSO(t *testing.T) {
	l := openLink(t, Config{Local: netip.MustParseAddrPort("[::1]:0"), GSO: OffloadOn})
	if got := l.handleSendError(&message{segments: 3}, unix.EIO); got != verdictSplit {
		t.Errorf("a super-packet refused with EIO: verdict %d, want split", got)
	}
	if s := l.Stats(); !s.GSODisabled || l.Info().GSO || s.Lost() != 0 {
		t.Errorf("GSO %v, counted %+v", l.Info().GSO, s)
	}
	ds := datagrams(100, 100, 100)
	for i := range ds {
		ds[i].Dst = local(l)
	}
	sendAll(t, l, ds...)
	must.Do(t, samePayloads(recvN(t, l, 3, 3), ds))
	if n := l.Stats().GSOPackets; n != 0 {
		t.Errorf("%d super-packets after GSO was disabled", n)
	}
}

func TestSendErrorsByErrno(t *testing.T) {
	l := openLink(t, Config{Local: netip.MustParseAddrPort("127.0.0.2:0")})
	one := &message{segments: 1}
	for _, errno := range []unix.Errno{unix.EAGAIN, unix.ENOBUFS, unix.ENOMEM} {
		if got := l.handleSendError(one, errno); got != verdictFull {
			t.Errorf("%v: verdict %d, want full", errno, got)
		}
	}
	for _, errno := range []unix.Errno{unix.EMSGSIZE, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.ECONNREFUSED, unix.EPERM, unix.EIO} {
		if got := l.handleSendError(one, errno); got != verdictLost {
			t.Errorf("%v: verdict %d, want lost", errno, got)
		}
	}
	want := Stats{SendFull: 3, LostTooBig: 1, LostUnreachable: 2, LostRefused: 1, LostDenied: 1, LostOther: 1, LastOtherError: unix.EIO}
	if got := l.Stats(); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
}

// Datagrams to a neighbour that does not reply to ARP fill the smallest send buffer.
func TestFullLinkTakesPrefix(t *testing.T) {
	a, _ := testutil.HostPair(t, 1500)
	for _, gso := range []Offload{OffloadOff, OffloadOn} {
		t.Run("gso "+gso.String(), func(t *testing.T) {
			tx := openIn(t, a, Config{Local: a.Addr(false, 0), SendBufBytes: 1, GSO: gso, PatchIPID: func(p []byte, id uint16) { p[0] ^= byte(id) }})
			absent := netip.MustParseAddrPort("10.77.0.99:4791")
			ds := datagrams(slices.Repeat([]int{1000}, 150)...)
			for i := range ds {
				ds[i].Dst = absent
			}
			taken, err := tx.Send(0, ds)
			if err != nil || taken == 0 || taken == len(ds) {
				t.Fatalf("Send = %d, %v; want some of %d", taken, err, len(ds))
			}
			untouched := datagrams(slices.Repeat([]int{1000}, 150)...)[taken:]
			for range 2 {
				if err := samePayloads(ds[taken:], untouched); err != nil {
					t.Errorf("payloads that Send did not take changed: %v", err)
				}
				if again, err := tx.Send(0, ds[taken:]); err != nil || again != 0 {
					t.Errorf("Send to the full link = %d, %v; want 0", again, err)
				}
			}
			s := tx.Stats()
			if s.SendFull != 3 || s.SentDatagrams != uint64(taken) || s.Lost() != 0 || (s.GSOPackets > 0) != (gso == OffloadOn) {
				t.Errorf("took %d, counted %+v", taken, s)
			}
		})
	}
}

// Drops of the link's socket and of a group's are counted.
func TestKernelDropsAreCounted(t *testing.T) {
	rx := openLink(t, Config{Local: netip.MustParseAddrPort("127.0.0.2:0"), RecvBufBytes: 1})
	tx := openLink(t, Config{Local: netip.MustParseAddrPort("127.0.0.3:0")})
	group := netip.MustParseAddr("239.77.1.7")
	must.Do(t, rx.Join(group))
	const each = 100
	sent := 0
	for _, to := range []netip.Addr{local(rx).Addr(), group} {
		ds := datagrams(slices.Repeat([]int{1000}, each)...)
		for i := range ds {
			ds[i].Dst = netip.AddrPortFrom(to, local(rx).Port())
		}
		sendAll(t, tx, ds...)
		sent += each
		var in [each]link.Datagram
		for {
			n := must.Get(rx.Recv(0, in[:]))(t)
			if n == 0 {
				break
			}
		}
		if s := rx.Stats(); s.KernelDrops < uint64(sent/2) || s.KernelDrops+s.RecvDatagrams != uint64(sent) {
			t.Errorf("to %v: received %d of %d, counted %d drops", to, s.RecvDatagrams, sent, s.KernelDrops)
		}
	}
}

func TestOpenErrors(t *testing.T) {
	v4, v6 := netip.MustParseAddrPort("127.0.0.2:0"), netip.MustParseAddrPort("[::1]:0")
	for _, tc := range []struct {
		name string
		cfg  Config
		want error // nil: any
	}{
		{"no address", Config{}, nil},
		{"address of another host", Config{Local: netip.MustParseAddrPort("192.0.2.77:0"), MTU: 1500}, unix.EADDRNOTAVAIL},
		{"address of another host, no MTU", Config{Local: netip.MustParseAddrPort("192.0.2.77:0")}, nil},
		{"tiny MTU", Config{Local: v6, MTU: 48}, nil},
		{"huge MTU", Config{Local: v4, MTU: 65536}, nil},
		{"GSO over IPv4 without PatchIPID", Config{Local: v4, GSO: OffloadOn}, nil},
		{"GSO without checksum", Config{Local: v6, GSO: OffloadOn, NoChecksum: true}, nil},
		{"zone of no interface", Config{Local: netip.MustParseAddrPort("[fe80::1%nosuch0]:0"), MTU: 1500}, nil},
	} {
		l, err := Open(tc.cfg)
		if err == nil {
			l.Close()
			t.Errorf("%s: opened", tc.name)
		} else if tc.want != nil && !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
	}
}

func TestInfo(t *testing.T) {
	l := openLink(t, Config{Local: netip.MustParseAddrPort("127.0.0.2:0"), RecvBufBytes: 100 << 10, SendBufBytes: 50 << 10})
	i := l.Info()
	if i.RecvBufBytes != 200<<10 || i.SendBufBytes != 100<<10 {
		t.Errorf("buffers of %d and %d bytes, want the doubles of 100 and 50 KiB", i.RecvBufBytes, i.SendBufBytes)
	}
	if i.Local.Port() == 0 || i.MTU != maxIPv4 || i.Interface != "lo" || i.GSO || i.HopLimit == 0 {
		t.Errorf("info %+v; want a port, lo's MTU capped at %d, no GSO without PatchIPID", i, maxIPv4)
	}
	if l := openLink(t, Config{Local: netip.MustParseAddrPort("127.0.0.2:0"), MTU: 1500, GRO: OffloadOn, PatchIPID: noPatch}); l.MTU() != 1500 || !l.Info().GSO || !l.Info().GRO {
		t.Errorf("info %+v; want MTU 1500 and both offloads", l.Info())
	}
}

func TestBusyPollNeedsPrivilege(t *testing.T) {
	l, err := Open(Config{Local: netip.MustParseAddrPort("127.0.0.2:0"), BusyPollMicros: 7})
	if err != nil {
		if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "CAP_NET_ADMIN") {
			t.Errorf("failed with %v", err)
		}
		return
	}
	defer l.Close()
	if n, err := unix.GetsockoptInt(l.fd, unix.SOL_SOCKET, unix.SO_BUSY_POLL); n != 7 || err != nil {
		t.Errorf("SO_BUSY_POLL = %d, %v; want 7", n, err)
	}
}
