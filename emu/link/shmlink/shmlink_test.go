package shmlink

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/linktest"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
)

const port = 4791

// addrs are the addresses of three ports, each of both families.
var addrs = [][]netip.Addr{
	{netip.MustParseAddr("fd00::1"), netip.MustParseAddr("10.0.0.1")},
	{netip.MustParseAddr("fd00::2"), netip.MustParseAddr("10.0.0.2")},
	{netip.MustParseAddr("fd00::3"), netip.MustParseAddr("10.0.0.3")},
}

func addr(i, family int) netip.AddrPort { return netip.AddrPortFrom(addrs[i][family], port) }

// newCable returns the file of a cable with n ports.
func newCable(t testing.TB, n int, cfg Config) *os.File {
	t.Helper()
	cfg.Ports = addrs[:n]
	f := must.Get(Create(cfg))(t)
	t.Cleanup(func() { f.Close() })
	return f
}

func openLink(t testing.TB, f *os.File, local netip.AddrPort) *Link {
	t.Helper()
	l := must.Get(Open(f, local))(t)
	t.Cleanup(func() { l.Close() })
	return l
}

func TestPacketLink(t *testing.T) {
	for family, name := range []string{"IPv6", "IPv4"} {
		t.Run(name, func(t *testing.T) {
			linktest.TestPacketLink(t, func(t *testing.T) linktest.Bench {
				f := newCable(t, 2, Config{})
				return linktest.Bench{
					A: openLink(t, f, addr(0, family)), B: openLink(t, f, addr(1, family)),
					AddrA: addr(0, family), AddrB: addr(1, family),
					TimeAfterArrival: func() mono.Time { return 1 },
				}
			})
		})
	}
}

// send sends datagrams, all of which the link must take.
func send(t testing.TB, l *Link, ds ...link.Datagram) {
	t.Helper()
	if n, err := l.Send(1, ds); n != len(ds) || err != nil {
		t.Fatalf("Send took %d of %d datagrams: %v", n, len(ds), err)
	}
}

// recv returns the payloads that a link has received, as text.
func recv(t testing.TB, l *Link) (all []string) {
	t.Helper()
	var ds [5]link.Datagram
	for {
		n := must.Get(l.Recv(1, ds[:]))(t)
		if n == 0 {
			return all
		}
		for i := range ds[:n] {
			all = append(all, string(ds[i].Payload))
		}
	}
}

func text(dst netip.AddrPort, s string) link.Datagram {
	return link.Datagram{Src: addr(0, 0), Dst: dst, Payload: []byte(s)}
}

// Records of all sizes cross the end of a lap many times.
func TestRingCarriesManyLaps(t *testing.T) {
	f := newCable(t, 2, Config{RingBytes: minRing})
	a, b := openLink(t, f, addr(0, 0)), openLink(t, f, addr(1, 0))
	payload := bytes.Repeat([]byte("0123456789abcdef"), 600)
	var in [7]link.Datagram
	sent, received := 0, 0
	length := func(i int) int { return i * 37 % 8900 }
	for received < 3000 {
		d := text(addr(1, 0), "")
		d.Tag, d.Payload = uint32(sent), payload[sent%16:][:length(sent)]
		n := must.Get(a.Send(1, []link.Datagram{d}))(t)
		sent += n
		if n == 1 && sent%11 != 0 {
			continue
		}
		for _, d := range in[:must.Get(b.Recv(1, in[:]))(t)] {
			if int(d.Tag) != received || !bytes.Equal(d.Payload, payload[received%16:][:length(received)]) {
				t.Fatalf("datagram %d has tag %d and %d bytes, or other bytes", received, d.Tag, len(d.Payload))
			}
			received++
		}
	}
	if s := b.Stats(); s.Garbage != 0 || a.Stats().SendFull == 0 {
		t.Errorf("receiver %+v, sender %+v: want no garbage, and a full ring", s, a.Stats())
	}
}

// A full ring stops the sender, until its consumer has taken nothing for PauseLimit. It does not
// stop datagrams to others after that, and recovers when the consumer takes something.
func TestRingWithoutConsumerStopsSenderForPauseLimit(t *testing.T) {
	f := newCable(t, 3, Config{RingBytes: minRing})
	a, b, c := openLink(t, f, addr(0, 0)), openLink(t, f, addr(1, 0)), openLink(t, f, addr(2, 0))
	long := text(addr(1, 0), string(make([]byte, 8000)))
	now := mono.Time(1)
	for must.Get(a.Send(now, []link.Datagram{long}))(t) == 1 {
	}
	now = now.Add(PauseLimit)
	if n := must.Get(a.Send(now, []link.Datagram{long}))(t); n != 0 {
		t.Fatal("the link took a datagram before PauseLimit has passed")
	}
	now = now.Add(1)
	if n := must.Get(a.Send(now, []link.Datagram{long, text(addr(2, 0), "other")}))(t); n != 2 || a.Stats().LostPaused != 1 {
		t.Fatalf("the link took %d datagrams, %+v", n, a.Stats())
	}
	if got := recv(t, c); len(got) != 1 {
		t.Errorf("another port got %q", got)
	}
	recv(t, b)
	send(t, a, text(addr(1, 0), "again"))
	if got := recv(t, b); len(got) != 1 || got[0] != "again" {
		t.Errorf("after the pause the port got %d datagrams", len(got))
	}
}

func TestDatagramsToGroupReachItsMembers(t *testing.T) {
	f := newCable(t, 3, Config{})
	a, b, c := openLink(t, f, addr(0, 0)), openLink(t, f, addr(1, 0)), openLink(t, f, addr(2, 0))
	group := netip.MustParseAddr("ff02::77")
	must.Do(t, a.Join(group))
	must.Do(t, b.Join(group))
	must.Do(t, b.Join(group))
	must.Do(t, b.Leave(group))
	d := text(netip.AddrPortFrom(group, port), "all")
	send(t, a, d)
	if x, y, z := recv(t, a), recv(t, b), recv(t, c); len(x) != 1 || len(y) != 1 || len(z) != 0 {
		t.Errorf("members got %q and %q, another %q", x, y, z)
	}
	must.Do(t, b.Leave(group))
	send(t, a, d)
	if y := recv(t, b); len(y) != 0 || b.Stats().RecvUnwanted != 1 {
		t.Errorf("a port that has left got %q, %+v", y, b.Stats())
	}
	if b.Leave(group) == nil || b.Join(addrs[0][0]) == nil {
		t.Error("Leave without Join, or Join of a unicast address, succeeded")
	}
}

func TestLinkCountsWhatItCannotDeliver(t *testing.T) {
	f := newCable(t, 2, Config{MTU: 1000})
	a, b := openLink(t, f, addr(0, 0)), openLink(t, f, addr(1, 0))
	send(t, a, text(netip.MustParseAddrPort("[fd00::9]:4791"), "nobody"), text(netip.AddrPortFrom(addrs[1][0], 1), "no listener"),
		text(addr(1, 1), "the other address"), text(addr(1, 0), string(make([]byte, 1000))))
	if got := recv(t, b); len(got) != 0 {
		t.Errorf("received %q", got)
	}
	if a, b := a.Stats(), b.Stats(); a.LostUnreachable != 1 || a.LostTooBig != 1 || b.RecvUnwanted != 2 {
		t.Errorf("sender %+v, receiver %+v", a, b)
	}
}

func TestPortIsOpenOnce(t *testing.T) {
	f := newCable(t, 2, Config{})
	a := openLink(t, f, addr(0, 0))
	if _, err := Open(f, addr(0, 1)); !errors.Is(err, ErrInUse) {
		t.Errorf("the second Open of a port: %v", err)
	}
	must.Do(t, a.Close())
	openLink(t, f, addr(0, 0))
	if _, err := Open(f, netip.MustParseAddrPort("[fd00::9]:1")); !errors.Is(err, ErrNoPort) {
		t.Errorf("Open of an unknown address: %v", err)
	}
	if _, err := OpenSwitch(f); !errors.Is(err, ErrNoPort) {
		t.Errorf("OpenSwitch of a cable without switch: %v", err)
	}
}

// A new link of a port gets what is sent after Open, and its datagrams follow those of the old.
func TestPortCanBeOpenedAgain(t *testing.T) {
	f := newCable(t, 2, Config{})
	a, b := openLink(t, f, addr(0, 0)), openLink(t, f, addr(1, 0))
	send(t, a, text(addr(1, 0), "one"))
	must.Do(t, a.Close())
	a = openLink(t, f, addr(0, 0))
	send(t, a, text(addr(1, 0), "two"))
	if got := recv(t, b); fmt.Sprint(got) != "[one two]" {
		t.Errorf("received %q", got)
	}
	send(t, a, text(addr(1, 0), "lost"))
	must.Do(t, b.Close())
	b = openLink(t, f, addr(1, 0))
	send(t, a, text(addr(1, 0), "three"))
	if got := recv(t, b); fmt.Sprint(got) != "[three]" {
		t.Errorf("received %q", got)
	}
}

func TestSwitchGetsAllDatagrams(t *testing.T) {
	f := newCable(t, 2, Config{Switch: true})
	a, b := openLink(t, f, addr(0, 0)), openLink(t, f, addr(1, 0))
	s := must.Get(OpenSwitch(f))(t)
	defer s.Close()
	send(t, a, text(addr(1, 0), "one"), text(netip.MustParseAddrPort("[fd00::9]:4791"), "two"))
	if got := recv(t, b); len(got) != 0 {
		t.Fatalf("%q has passed the switch", got)
	}
	ds := make([]link.Datagram, 4)
	n := must.Get(s.Recv(1, ds))(t)
	if n != 2 || ds[0].Tag != 0 {
		t.Fatalf("the switch has %d datagrams, the first from port %d", n, ds[0].Tag)
	}
	if to := s.Ports()[addrs[1][1]]; !s.SendTo(1, to, &ds[0]) {
		t.Error("the ring is full")
	}
	if x, y := recv(t, a), recv(t, b); len(x) != 0 || fmt.Sprint(y) != "[one]" {
		t.Errorf("the sender got %q, the other %q", x, y)
	}
}

func TestWaitReadableWakes(t *testing.T) {
	f := newCable(t, 2, Config{})
	a, b := openLink(t, f, addr(0, 0)), openLink(t, f, addr(1, 0))
	b.Wake()
	must.Do(t, b.WaitReadable(-1)) // the next after Wake
	must.Do(t, b.WaitReadable(time.Microsecond))
	for _, wake := range []func(){func() { send(t, a, text(addr(1, 0), "x")) }, b.Wake, func() { b.Close() }} {
		var done sync.WaitGroup
		done.Go(func() {
			for b.states[1].word.Load() != asleep {
				runtime.Gosched()
			}
			wake()
		})
		must.Do(t, b.WaitReadable(-1))
		done.Wait()
		recvIfOpen(b)
	}
	if err := b.WaitReadable(-1); !errors.Is(err, link.ErrClosed) {
		t.Errorf("WaitReadable of a closed link: %v", err)
	}
	if w := a.Stats().Wakes; w != 1 {
		t.Errorf("%d wakes of a consumer that slept once", w)
	}
}

// recvIfOpen takes one datagram of a link that may be closed.
func recvIfOpen(l *Link) { _, _ = l.Recv(1, make([]link.Datagram, 1)) }

func TestLinkDoesNotAllocate(t *testing.T) {
	f := newCable(t, 2, Config{})
	a, b := openLink(t, f, addr(0, 0)), openLink(t, f, addr(1, 0))
	ds, in := make([]link.Datagram, 30), make([]link.Datagram, 64)
	for i := range ds {
		ds[i] = text(addr(1, 0), string(make([]byte, 100*i)))
	}
	ds[3].HopLimit, ds[3].IPID = 0, link.IPIDUnknown
	allocs := testing.AllocsPerRun(50, func() {
		send(t, a, ds...)
		for got := 0; got < len(ds); {
			must.Do(t, b.WaitReadable(time.Second))
			n, _ := b.Recv(1, in)
			got += n
		}
		must.Do(t, b.WaitReadable(time.Microsecond))
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

// Two goroutines with a link each exchange datagrams while others wait: for the race detector.
func TestLinksRunConcurrently(t *testing.T) {
	f := newCable(t, 2, Config{RingBytes: minRing})
	const total = 2000
	links := []*Link{openLink(t, f, addr(0, 0)), openLink(t, f, addr(1, 0))}
	var done sync.WaitGroup
	for side, l := range links {
		done.Go(func() {
			in := make([]link.Datagram, 8)
			d := text(addr(1-side, 0), "")
			d.Payload = make([]byte, 500)
			for sent, got := 0, 0; sent < total || got < total; {
				if sent < total {
					n, err := l.Send(1, []link.Datagram{d})
					if err != nil {
						t.Error(err)
						return
					}
					sent += n
				} else if err := l.WaitReadable(time.Millisecond); err != nil {
					t.Error(err)
				}
				n, _ := l.Recv(1, in)
				got += n
			}
		})
	}
	done.Wait()
}

func TestCreateRefusesInvalidConfig(t *testing.T) {
	one := addrs[:1]
	for name, c := range map[string]Config{
		"no ports":   {},
		"no address": {Ports: [][]netip.Addr{nil}},
		"many ports": {Ports: make([][]netip.Addr, MaxPorts+1)},
		"small MTU":  {Ports: one, MTU: 100},
		"odd ring":   {Ports: one, RingBytes: minRing + 64},
	} {
		if f, err := Create(c); err == nil {
			f.Close()
			t.Errorf("%s: no error", name)
		}
	}
	f := must.Get(os.Create(t.TempDir() + "/file"))(t)
	defer f.Close()
	for _, size := range []int64{0, 2 * pageBytes} {
		must.Do(t, f.Truncate(size))
		if _, err := Open(f, addr(0, 0)); !errors.Is(err, errNotCable) {
			t.Errorf("Open of another file: %v", err)
		}
	}
}

func BenchmarkOneDatagram(b *testing.B) { benchmark(b, 1, 64) }
func BenchmarkBurst(b *testing.B)       { benchmark(b, 32, 64) }
func BenchmarkPackets(b *testing.B)     { benchmark(b, 16, 4200) }

func benchmark(b *testing.B, n, size int) {
	f := newCable(b, 2, Config{})
	tx, rx := openLink(b, f, addr(0, 0)), openLink(b, f, addr(1, 0))
	ds, in := make([]link.Datagram, n), make([]link.Datagram, 64)
	for i := range ds {
		ds[i] = text(addr(1, 0), string(make([]byte, size)))
		ds[i].HopLimit = 64
	}
	b.SetBytes(int64(n * size))
	for b.Loop() {
		send(b, tx, ds...)
		for got := 0; got < n; {
			k := must.Get(rx.Recv(0, in))(b)
			got += k
		}
	}
}
