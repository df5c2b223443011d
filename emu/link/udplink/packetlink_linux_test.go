package udplink

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/linktest"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
)

func TestPacketLink(t *testing.T) {
	for _, f := range families {
		for _, o := range []Offload{OffloadAuto, OffloadOff} {
			t.Run(f.name+"/offloads "+o.String(), func(t *testing.T) {
				linktest.TestPacketLink(t, func(t *testing.T) linktest.Bench {
					open := func() *Link {
						return openLink(t, Config{Local: netip.AddrPortFrom(f.addr, 0), MTU: 9000, GSO: o, GRO: o, PatchIPID: noPatch})
					}
					a, b := open(), open()
					// Loopback delivers during the send call, or soon after on a busy machine.
					settle := func() mono.Time { b.WaitReadable(2 * time.Millisecond); return 1 }
					return linktest.Bench{A: a, B: b, AddrA: local(a), AddrB: local(b), TimeAfterArrival: settle}
				})
			})
		}
	}
}

// Neither single datagrams nor batches allocate, with and without offloads, spinning and sleeping.
func TestLinkDoesNotAllocate(t *testing.T) {
	for _, f := range families {
		for _, o := range []Offload{OffloadOn, OffloadOff} {
			for _, n := range []int{1, 50, 200} {
				l := openLink(t, Config{Local: netip.AddrPortFrom(f.addr, 0), GSO: o, GRO: o, PatchIPID: noPatch})
				ds := datagramsTo(l, n)
				ds[n/2].TClass, ds[n/2].HopLimit = link.ECT0, 7 // needs control messages
				in := make([]link.Datagram, 64)
				allocs := testing.AllocsPerRun(50, func() {
					sendAll(t, l, ds...)
					for got := 0; got < n; {
						l.WaitReadable(time.Second)
						k := must.Get(l.Recv(0, in))(t)
						got += k
					}
					l.Wake()
					l.WaitReadable(-1)
					l.WaitReadable(time.Microsecond)
					l.Recv(0, in)
					l.Stats()
				})
				if allocs != 0 {
					t.Errorf("%s, offloads %v, %d datagrams: %v allocations", f.name, o, n, allocs)
				}
			}
		}
	}
}

// The benchmarks send from a link to itself over loopback, on one thread. They measure the
// cost of the link; package perflab compares links with bare sockets on a veth pair.

func BenchmarkOneDatagram(b *testing.B) { benchmarkBatch(b, 1, 64) }

// BenchmarkSuperPacket sends and receives as much as one system call can.
func BenchmarkSuperPacket(b *testing.B) { benchmarkBatch(b, 15, 4096) }

func benchmarkBatch(b *testing.B, n, size int) {
	for _, f := range families {
		b.Run(f.name, func(b *testing.B) {
			l := openLink(b, Config{Local: netip.AddrPortFrom(f.addr, 0), PatchIPID: noPatch})
			ds := make([]link.Datagram, n)
			for i := range ds {
				ds[i] = link.Datagram{Dst: local(l), Payload: make([]byte, size)}
			}
			in := make([]link.Datagram, 64)
			b.SetBytes(int64(n * size))
			b.ReportAllocs()
			for b.Loop() {
				if k, err := l.Send(0, ds); k != n || err != nil {
					b.Fatal(k, err)
				}
				for got := 0; got < n; {
					k := must.Get(l.Recv(0, in))(b)
					got += k
				}
				l.Recv(0, in) // empty, like the last Recv of a driver
			}
		})
	}
}

func BenchmarkEmptyRecv(b *testing.B) {
	l := openLink(b, Config{Local: netip.AddrPortFrom(families[0].addr, 0)})
	in := make([]link.Datagram, 64)
	for b.Loop() {
		l.Recv(0, in)
	}
}

func TestDropFragmentable(t *testing.T) {
	const tooLong = 65000 // does not fit the path below
	for _, tc := range []struct {
		name    string
		options []byte
		pmtu    int
		size    int
		plain   bool
	}{
		{"plain", nil, unix.IP_PMTUDISC_DO, 100, true},
		{"options", []byte{1, 1, 1, 1}, unix.IP_PMTUDISC_DO, 100, false},
		{"fragments allowed", nil, unix.IP_PMTUDISC_DONT, 100, false},
		{"options and fragments allowed", []byte{1, 1, 1, 1}, unix.IP_PMTUDISC_DONT, tooLong, false},
	} {
		for _, plainOnly := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", tc.name, plainOnly), func(t *testing.T) {
				l := openLink(t, Config{Local: netip.MustParseAddrPort("127.0.0.2:0"), DropFragmentable: plainOnly, PatchIPID: noPatch})
				fd := must.Get(unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0))(t)
				defer unix.Close(fd)
				must.Do(t, unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, tc.pmtu))
				if tc.options != nil {
					must.Do(t, unix.SetsockoptString(fd, unix.IPPROTO_IP, unix.IP_OPTIONS, string(tc.options)))
				}
				to := &unix.SockaddrInet4{Port: int(local(l).Port()), Addr: local(l).Addr().As4()}
				must.Do(t, unix.Sendto(fd, pattern(3, tc.size), 0, to))
				// This datagram arrives after the other, and so ends the wait.
				sendAll(t, l, link.Datagram{Dst: local(l), Payload: pattern(9, 8)})
				got := 1
				if !plainOnly || tc.plain {
					got = 2
				}
				ds := recvN(t, l, got, 8)
				if first := len(ds[0].Payload); got == 2 && first != tc.size || got == 1 && first != 8 {
					t.Errorf("received %d bytes first", first)
				}
			})
		}
	}
}

// The UDP checksum is not 0, so that the socket receives the packets, not the ring.
func TestDropFragmentableDropsIPv6ExtensionHeaders(t *testing.T) {
	destinationOptions := string([]byte{0, 0, 1, 4, 0, 0, 0, 0}) // 4 bytes of padding
	for _, c := range []struct{ plainOnly, ring bool }{{false, false}, {true, false}, {true, true}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			from, to := testutil.HostPair(t, 1500)
			cfg := Config{Local: to.Addr(true, 4791), PacketRing: OffloadOff, DropFragmentable: c.plainOnly, PatchIPID: noPatch}
			if c.ring {
				cfg.PacketRing = OffloadOn
			}
			l := openIn(t, to, cfg)
			var fd int
			must.Do(t, from.Do(func() (err error) {
				fd, err = unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
				return err
			}))
			defer unix.Close(fd)
			dst := &unix.SockaddrInet6{Port: 4791, Addr: to.V6.As16()}
			must.Do(t, unix.SetsockoptString(fd, unix.IPPROTO_IPV6, unix.IPV6_DSTOPTS, destinationOptions))
			must.Do(t, unix.Sendto(fd, pattern(3, 100), 0, dst))
			must.Do(t, unix.SetsockoptString(fd, unix.IPPROTO_IPV6, unix.IPV6_DSTOPTS, ""))
			must.Do(t, unix.Sendto(fd, pattern(9, 8), 0, dst))
			want := []int{100, 8}
			if c.plainOnly {
				want = want[1:]
			}
			for i, d := range recvN(t, l, len(want), 8) {
				if len(d.Payload) != want[i] {
					t.Errorf("received %d bytes, want %v", len(d.Payload), want)
				}
			}
		})
	}
}

// A datagram orders memory accesses: the race detector does not report a write before Send
// and a read after Recv, whichever system call was used.
func TestDatagramOrdersMemoryAccesses(t *testing.T) {
	for _, n := range []int{1, 2, 40} {
		for _, tclass := range []uint8{0, link.CE} { // the second needs a control message
			t.Run(fmt.Sprintf("%d datagrams, traffic class %d", n, tclass), func(t *testing.T) {
				rx := openLink(t, Config{Local: netip.AddrPortFrom(families[0].addr, 0)})
				tx := openLink(t, Config{Local: netip.AddrPortFrom(families[0].addr, 0)})
				ds := datagramsTo(rx, n)
				for i := range ds {
					ds[i].TClass = tclass
				}
				before, in := 0, make([]link.Datagram, n)
				errs := make(chan error, 1)
				// Nothing but the datagram may order the two goroutines, t.Helper included.
				go func() {
					before = 1
					var err error
					for left := ds; len(left) > 0 && err == nil; {
						var took int
						took, err = tx.Send(0, left)
						left = left[took:]
					}
					errs <- err
				}()
				for got := 0; got < n; runtime.Gosched() {
					k := must.Get(rx.Recv(0, in))(t)
					got += k
				}
				if before != 1 {
					t.Error("the datagram arrived before it was sent")
				}
				if err := <-errs; err != nil {
					t.Error(err)
				}
			})
		}
	}
}
