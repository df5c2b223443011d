package udplink

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
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

// ringConfig is the configuration of a link with a packet ring.
func ringConfig(h *testutil.Host, v6 bool) Config {
	return Config{Local: h.Addr(v6, 4791), PacketRing: OffloadOn, DropFragmentable: true, PatchIPID: noPatch, SeparateSourcePort: true}
}

// openRings opens two links with packet rings on a veth pair, and sends from both until they send frames.
func openRings(t testing.TB, v6 bool, mtu int) (a, b *Link) {
	t.Helper()
	hostA, hostB := testutil.HostPair(t, mtu)
	a, b = openIn(t, hostA, ringConfig(hostA, v6)), openIn(t, hostB, ringConfig(hostB, v6))
	sendUntilFrames(t, a, b)
	sendUntilFrames(t, b, a)
	return a, b
}

// sendUntilFrames sends single datagrams until the link sends frames: it knows the peer's MAC address.
func sendUntilFrames(t testing.TB, from, to *Link) {
	t.Helper()
	for range 100 * connectAfter {
		sendAll(t, from, link.Datagram{Dst: local(to), Payload: []byte("look up the neighbour")})
		recvN(t, to, 1, 1)
		if from.Stats().SentFrames > 0 {
			return
		}
	}
	t.Fatal("the link sends no frames")
}

// eachFamily runs a test over IPv4 and IPv6.
func eachFamily(t *testing.T, test func(t *testing.T, v6 bool)) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) { test(t, f.addr.Is6()) })
	}
}

func TestRingIsPacketLink(t *testing.T) {
	eachFamily(t, func(t *testing.T, v6 bool) {
		linktest.TestPacketLink(t, func(t *testing.T) linktest.Bench {
			a, b := openRings(t, v6, 9000)
			// The peer receives during the send call, or soon after on a busy machine.
			settle := func() mono.Time { b.WaitReadable(2 * time.Millisecond); return 1 }
			return linktest.Bench{A: a, B: b, AddrA: a.Info().Source, AddrB: local(b), TimeAfterArrival: settle}
		})
	})
}

// Frames, single datagrams of the socket and super-packets arrive in the order in which they were
// sent, each once, while sender and receiver run at the same time.
func TestRingKeepsOrder(t *testing.T) {
	const total = 20000
	eachFamily(t, func(t *testing.T, v6 bool) {
		a, b := openRings(t, v6, 9000)
		sent := make(chan error, 1)
		arrived := make(chan int, total) // to let the sender wait
		go func() {
			rng := rand.New(rand.NewPCG(3, 4))
			ds := make([]link.Datagram, 40)
			for i, seen := 0, 0; i < total; {
				n := min([]int{1, 1, 1, 2, 2, 3, 40}[rng.IntN(7)], total-i)
				size := 8 + rng.IntN(5000)
				for k := range n {
					ds[k] = link.Datagram{Dst: local(b), TClass: link.ECT0 * uint8(rng.IntN(2)), Payload: binary.BigEndian.AppendUint32(make([]byte, 0, size), uint32(i+k))[:size]}
				}
				i += n
				for left := ds[:n]; len(left) > 0; {
					took, err := a.Send(0, left)
					if err != nil {
						sent <- err
						return
					}
					left = left[took:]
				}
				for i-seen > 200 || a.frames.last.unanswered == maxUnanswered && rng.IntN(8) == 0 && seen < i {
					seen += <-arrived
					a.frames.received(local(b).Addr())
				}
			}
			sent <- nil
		}()
		ds := make([]link.Datagram, 64)
		rng := rand.New(rand.NewPCG(5, 6))
		for want := uint32(0); want < total; {
			n := must.Get(b.Recv(0, ds[:1+rng.IntN(len(ds))]))(t)
			for _, d := range ds[:n] {
				if got := binary.BigEndian.Uint32(d.Payload); got != want {
					t.Fatalf("datagram %d arrived, want %d; sender %+v, receiver %+v", got, want, a.stats, b.stats)
				}
				want++
			}
			if n > 0 {
				arrived <- n
				continue
			}
			must.Do(t, b.WaitReadable(time.Second))
		}
		must.Do(t, <-sent)
		if s, r := a.Stats(), b.Stats(); s.SentFrames < total/20 || s.GSOPackets < 100 || r.RecvFrames < total/20 || s.SentDatagrams-s.SentFrames < total/20 || r.KernelDrops != 0 {
			t.Errorf("the sender's counters are %+v, the receiver's %+v: want frames, super-packets and datagrams of the socket, and no drops", s, r)
		}
	})
}

// A link with a ring and one without exchange datagrams, and a ring receives those of a socket without
// checksums.
func TestRingWithOtherLinks(t *testing.T) {
	eachFamily(t, func(t *testing.T, v6 bool) {
		hostA, hostB := testutil.HostPair(t, 9000)
		ringed := openIn(t, hostA, ringConfig(hostA, v6))
		for _, noChecksum := range []bool{false, true} {
			plain := openIn(t, hostB, Config{Local: hostB.Addr(v6, 4791), PacketRing: OffloadOff, NoChecksum: noChecksum, PatchIPID: noPatch})
			sendUntilFrames(t, ringed, plain)
			before := ringed.Stats().RecvFrames
			sendAll(t, plain, datagramsTo(ringed, 20)...)
			recvN(t, ringed, 20, 64)
			want := uint64(0)
			if noChecksum {
				want = 20
			}
			if got := ringed.Stats().RecvFrames - before; got != want {
				t.Errorf("checksums off %v: %d of 20 datagrams came through the ring, want %d", noChecksum, got, want)
			}
			plain.Close()
		}
	})
}

// Datagrams of all lengths around the limit of the ring arrive once, with and without checksum.
func TestRingLengths(t *testing.T) {
	eachFamily(t, func(t *testing.T, v6 bool) {
		a, b := openRings(t, v6, 9000)
		for _, n := range []int{0, 1, 17, maxRingUDP - 9, maxRingUDP - 8, maxRingUDP - 7, 8000, 9000 - headerLen(v6)} {
			for _, tclass := range []uint8{0, link.CE} {
				want := link.Datagram{Dst: local(b), TClass: tclass, Payload: pattern(n, n)}
				sendAll(t, a, want)
				got := recvN(t, b, 1, 3)[0]
				if !bytes.Equal(got.Payload, want.Payload) || got.TClass != tclass {
					t.Errorf("sent %d bytes with class %#x, received %d with %#x", n, tclass, len(got.Payload), got.TClass)
				}
			}
		}
		recvNothing(t, b, func(d link.Datagram) { d.Dst = local(b); sendAll(t, a, d) })
	})
}

// Nothing is lost or reordered if the receiver does not read for a while: the sender stops to send frames
// before the ring is full.
func TestRingDoesNotOverflow(t *testing.T) {
	eachFamily(t, func(t *testing.T, v6 bool) {
		a, b := openRings(t, v6, 9000)
		const n = 3 * ringSlots
		for i := range n {
			sendAll(t, a, link.Datagram{Dst: local(b), Payload: binary.BigEndian.AppendUint32(nil, uint32(i))})
		}
		for i, d := range recvN(t, b, n, 64) {
			if got := binary.BigEndian.Uint32(d.Payload); got != uint32(i) {
				t.Fatalf("datagram %d arrived, want %d", got, i)
			}
		}
		if drops := b.Stats().KernelDrops; drops != 0 {
			t.Errorf("%d drops, want 0", drops)
		}
	})
}

// A sender that does not know of rings may fill one: what is lost is counted, and later datagrams arrive.
func TestRingOverflowIsCounted(t *testing.T) {
	a, b := openRings(t, true, 9000)
	must.Get(b.Recv(0, make([]link.Datagram, 1)))(t) // returns the last slot to the kernel
	const n = 2 * ringSlots
	for i := range n {
		a.frames.received(local(b).Addr()) // as if b had answered
		sendAll(t, a, link.Datagram{Dst: local(b), Payload: binary.BigEndian.AppendUint32(nil, uint32(i))})
	}
	got := recvN(t, b, ringSlots, 64)
	if last := binary.BigEndian.Uint32(got[len(got)-1].Payload); last != ringSlots-1 {
		t.Errorf("the last of %d datagrams is %d", len(got), last)
	}
	if drops := b.Stats().KernelDrops; drops != n-ringSlots {
		t.Errorf("%d drops, want %d", drops, n-ringSlots)
	}
	recvNothing(t, b, func(d link.Datagram) { d.Dst = local(b); sendAll(t, a, d) })
}

// sendFrame sends the frame of a datagram from a to b with an Ethernet, IP and UDP header that change has
// changed.
func sendFrame(t *testing.T, a, b *Link, change func(frame []byte)) {
	t.Helper()
	f := &a.frames
	f.append(&link.Datagram{Dst: local(b), Payload: pattern(1, 100)}, f.known[local(b).Addr()])
	frame := bytes.Clone(f.buf)
	change(frame)
	if n, err := unix.Write(a.ring.fd, frame); n != len(frame) || err != nil {
		t.Fatalf("sent %d of %d bytes: %v", n, len(frame), err)
	}
}

// Invalid packets are dropped, and those after them arrive.
func TestRingDropsInvalidPackets(t *testing.T) {
	eachFamily(t, func(t *testing.T, v6 bool) {
		a, b := openRings(t, v6, 1500)
		ipLen := headerLen(v6) - link.UDPHeaderLen
		ip := func(frame []byte) []byte { return frame[ethernetHeaderLen:] }
		udp := func(frame []byte) []byte { return ip(frame)[ipLen:] }
		fixIPv4 := func(p []byte) {
			if !v6 {
				clear(p[10:12])
				binary.BigEndian.PutUint16(p[10:], link.Checksum(p[:link.IPv4HeaderLen]))
			}
		}
		for _, tc := range []struct {
			name   string
			change func(frame []byte)
		}{
			{"wrong checksum", func(f []byte) { binary.BigEndian.PutUint16(udp(f)[6:], 0x1234) }},
			{"UDP length beyond the packet", func(f []byte) { binary.BigEndian.PutUint16(udp(f)[4:], 109) }},
			{"UDP length shorter than its header", func(f []byte) { binary.BigEndian.PutUint16(udp(f)[4:], 7) }},
			{"UDP length 0", func(f []byte) { binary.BigEndian.PutUint16(udp(f)[4:], 0) }},
			{"IP length beyond the frame", func(f []byte) {
				at := 2
				if v6 {
					at = 4
				}
				binary.BigEndian.PutUint16(ip(f)[at:], 1400)
				fixIPv4(ip(f))
			}},
			{"another protocol", func(f []byte) {
				at := 9
				if v6 {
					at = 6
				}
				ip(f)[at] = 253
				fixIPv4(ip(f))
			}},
			{"another destination", func(f []byte) { ip(f)[ipLen-1] ^= 0x40; fixIPv4(ip(f)) }},
			{"another port", func(f []byte) { udp(f)[3] ^= 1 }},
			{"another host's frame", func(f []byte) { f[5] ^= 1 }},
			{"wrong IPv4 checksum", func(f []byte) {
				if v6 {
					f[5] ^= 1 // IPv6 has none: as above
				}
				ip(f)[10] ^= 1
			}},
			{"IPv4 fragment", func(f []byte) {
				if v6 {
					f[5] ^= 1
				}
				ip(f)[6] = 0x20
				fixIPv4(ip(f))
			}},
		} {
			t.Run(tc.name, func(t *testing.T) {
				sendFrame(t, a, b, tc.change)
				recvNothing(t, b, func(d link.Datagram) { d.Dst = local(b); sendAll(t, a, d) })
			})
		}
	})
}

// A datagram that the socket drops, since its checksum is wrong, does not change the order of those after it.
func TestRingKeepsOrderAfterDrop(t *testing.T) {
	eachFamily(t, func(t *testing.T, v6 bool) {
		a, b := openRings(t, v6, 9000)
		frame, batch := datagramsTo(b, 1), datagramsTo(b, 3)
		for i, d := range append(frame, batch...) {
			copy(d.Payload, fmt.Sprint("datagram ", i))
		}
		for range 2 {
			sendFrame(t, a, b, func(f []byte) {
				binary.BigEndian.PutUint16(f[ethernetHeaderLen+headerLen(v6)-2:], 0x1234)
			})
		}
		sendAll(t, a, frame...)
		sendAll(t, a, batch...)
		for i, d := range recvN(t, b, 4, 64) {
			if want := fmt.Sprint("datagram ", i); !bytes.HasPrefix(d.Payload, []byte(want)) {
				t.Errorf("datagram %d is %q", i, d.Payload)
			}
		}
	})
}

// A host with a ring receives datagrams from its own network namespace, with and without checksum: they pass
// the loopback interface.
func TestRingReceivesFromOwnHost(t *testing.T) {
	eachFamily(t, func(t *testing.T, v6 bool) {
		host, _ := testutil.HostPair(t, 1500)
		ringed := openIn(t, host, ringConfig(host, v6))
		noChecksum := openIn(t, host, Config{Local: host.Addr(v6, 0), PacketRing: OffloadOff, NoChecksum: true})
		for _, from := range []*Link{ringed, noChecksum} {
			for i := range 2 * connectAfter {
				sendAll(t, from, link.Datagram{Dst: local(ringed), Payload: pattern(i, 50)})
				if got := recvN(t, ringed, 1, 4)[0]; !bytes.Equal(got.Payload, pattern(i, 50)) {
					t.Fatalf("datagram %d: received other %d bytes", i, len(got.Payload))
				}
			}
		}
	})
}

// The MAC address of a neighbour is looked up again after macValid. The datagram before goes through the
// socket, so that the kernel asks the neighbour whether it still has the address.
func TestNeighbourIsLookedUpAgain(t *testing.T) {
	a, b := openRings(t, true, 1500)
	frames := func(now mono.Time) uint64 {
		before := a.Stats().SentFrames
		if n := must.Get(a.Send(now, []link.Datagram{{Dst: local(b), Payload: []byte("x")}}))(t); n != 1 {
			t.Fatal("the link is full")
		}
		recvN(t, b, 1, 1)
		return a.Stats().SentFrames - before
	}
	later := mono.Time(0).Add(macValid)
	var got []uint64
	for _, now := range []mono.Time{later - 1, later, later, later.Add(macValid) - 1, later.Add(macValid)} {
		got = append(got, frames(now))
	}
	if want := []uint64{1, 0, 1, 1, 0}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("frames %v, want %v", got, want)
	}
}

// A sleeping link wakes for datagrams of the ring and of the socket, and sleeps again once they are read.
func TestRingWakes(t *testing.T) {
	a, b := openRings(t, true, 9000)
	for _, ds := range [][]link.Datagram{datagramsTo(b, 1), datagramsTo(b, 30)} {
		woken := make(chan error, 1)
		go func() { woken <- b.WaitReadable(forever) }()
		sendAll(t, a, ds...)
		must.Do(t, <-woken)
		recvN(t, b, len(ds), 64)
		b.Recv(0, make([]link.Datagram, 1)) // returns the slots to the kernel
		const pause = 20 * time.Millisecond
		if before := time.Now(); b.WaitReadable(pause) != nil || time.Since(before) < pause {
			t.Errorf("after %d datagrams were read, a wait of %v took %v", len(ds), pause, time.Since(before))
		}
	}
}

// Without a veth interface or CAP_NET_RAW there is no ring, which is an error only with OffloadOn.
func TestRingIsUnavailable(t *testing.T) {
	cfg := Config{Local: netip.MustParseAddrPort("[::1]:0"), PacketRing: OffloadOn}
	must.Fail(t, "ring on loopback", must.Err(Open(cfg)), errNoRing)
	cfg.PacketRing = OffloadAuto
	if openLink(t, cfg).Info().PacketRing {
		t.Error("the loopback interface has a ring")
	}
	host, _ := testutil.HostPair(t, 1500)
	for _, want := range []Offload{OffloadOn, OffloadAuto} {
		cfg := ringConfig(host, true)
		cfg.PacketRing = want
		opened := make(chan error, 1)
		go func() {
			runtime.LockOSThread() // and never unlock: the thread ends, as it has lost its capabilities
			opened <- host.Do(func() error {
				head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
				var none [2]unix.CapUserData
				if err := unix.Capset(&head, &none[0]); err != nil {
					return err
				}
				l, err := Open(cfg)
				if err == nil {
					if l.Info().PacketRing {
						err = errors.New("the link has a ring without CAP_NET_RAW")
					}
					l.Close()
				}
				return err
			})
		}()
		if err := <-opened; want == OffloadOn {
			must.Fail(t, "ring without capabilities", err, unix.EPERM)
		} else {
			must.Do(t, err)
		}
	}
}

func TestRingDoesNotAllocate(t *testing.T) {
	eachFamily(t, func(t *testing.T, v6 bool) {
		a, b := openRings(t, v6, 9000)
		there, back := datagramsTo(b, 1), datagramsTo(a, 1)
		in := make([]link.Datagram, 64)
		exchange := func(from, to *Link, d []link.Datagram) {
			from.Send(0, d)
			for {
				if n, _ := to.Recv(0, in); n > 0 {
					return
				}
			}
		}
		if allocs := testing.AllocsPerRun(100, func() { exchange(a, b, there); exchange(b, a, back) }); allocs != 0 {
			t.Errorf("a round trip allocates %v times", allocs)
		}
		if s := a.Stats(); s.SentFrames < 100 {
			t.Errorf("%d frames, want all of more than 100 datagrams", s.SentFrames)
		}
	})
}
