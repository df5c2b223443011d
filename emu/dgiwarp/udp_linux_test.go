package dgiwarp

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/engine"
	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link/udplink"
	"github.com/fabrictest/fabrictest/internal/must"
)

// loopbackAddr returns a random address of the loopback network, which needs no privilege.
// Concurrent runs of the tests do not collide.
func loopbackAddr() netip.Addr {
	r := rand.Uint32()
	return netip.AddrFrom4([4]byte{127, 1 + byte(r)%254, byte(r >> 8), 1 + byte(r>>16)%254})
}

// loopbackPair opens two devices on the loopback network.
func loopbackPair(t testing.TB) (a, b *Device) {
	t.Helper()
	open := func() *Device {
		addr := loopbackAddr()
		d := must.Get(OnUDP(udplink.Config{}, Config{Name: addr.String(), Addrs: []netip.Addr{addr}}))(t)
		t.Cleanup(func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
		return d
	}
	return open(), open()
}

func TestEchoOverUDPSockets(t *testing.T) {
	a, b := loopbackPair(t)
	for _, opt := range []QPOptions{unreliable, reliable} {
		if err := (exchange{newEnd(t, a, opt), newEnd(t, b, opt), 200}).run(); err != nil {
			t.Errorf("%+v: %v", opt, err)
		}
	}
	for _, d := range []*Device{a, b} {
		for _, name := range []string{"drop_crc", "drop_malformed", "drop_no_receive", "udp_lost", "errors_found"} {
			if n := counter(d, name); n != 0 {
				t.Errorf("%s of %s is %d", name, d.Name(), n)
			}
		}
		if counter(d, "udp_sends") == 0 {
			t.Error("the socket counters are 0")
		}
	}
}

// Devices on different ports of one IPv4 or IPv6 address exchange messages.
func TestDevicesShareAddressOnDifferentPorts(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		h := newHosts(t, v6)
		a := h.mustDevice(t, 0, Config{NIC: engine.Config{Port: 20001}})
		b := h.mustDevice(t, 0, Config{NIC: engine.Config{Port: 20002}})
		for _, opt := range []QPOptions{unreliable, reliable} {
			if err := (exchange{newEnd(t, a, opt), newEnd(t, b, opt), 20}).run(); err != nil {
				t.Errorf("IPv6 %v, %+v: %v", v6, opt, err)
			}
		}
		if _, err := h.device(0, Config{NIC: engine.Config{Port: 20001}}); err == nil || !strings.Contains(err.Error(), "20001") {
			t.Errorf("a port in use: %v", err)
		}
	}
}

func TestGroupsAcrossNamespaces(t *testing.T) {
	for _, group := range []string{"ff05::1234", "239.1.2.3", "255.255.255.255"} {
		t.Run(group, func(t *testing.T) {
			addr := netip.MustParseAddr(group)
			ds := newHosts(t, addr.Is6()).pair(t, Config{})
			sender, far, other := newEnd(t, ds[0], unreliable), newEnd(t, ds[1], unreliable), newEnd(t, ds[1], unreliable)
			near := newEnd(t, ds[0], unreliable)
			checkGroup(addr, sender, []*end{far, near}, []*end{other})
		})
	}
}

// The device counts all random datagrams and continues to work.
func TestRandomDatagramsAreCounted(t *testing.T) {
	count := 40_000
	if testing.Short() {
		count = 4_000
	}
	a, b := loopbackPair(t)
	targets := []*end{newEnd(t, b, QPOptions{Isolate: true}), newEnd(t, b, QPOptions{Reliable: true, Isolate: true})}
	for _, e := range targets {
		e.recv(0, 9000)
	}
	conn := must.Get(net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(loopbackAddr(), 0)), net.UDPAddrFromAddrPort(targets[0].source().Addr)))(t)
	defer conn.Close()
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range count {
		packet := randomPacket(rng, targets)
		if _, err := conn.Write(packet); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Fatalf("datagram %d: %v", i, err)
		}
		if i%256 == 0 {
			time.Sleep(time.Millisecond) // do not overflow the socket buffer
		}
	}
	for deadline := time.Now().Add(30 * time.Second); counter(b, "rcvd_packets")+counter(b, "udp_dropped") < uint64(count); {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d datagrams were counted", counter(b, "rcvd_packets"), count)
		}
		time.Sleep(time.Millisecond)
	}
	for _, name := range []string{"drop_crc", "drop_malformed", "drop_qpn", "drop_key", "rd_drop_unproved", "errors_found"} {
		if counter(b, name) == 0 {
			t.Errorf("%s is 0", name)
		}
	}
	for _, opt := range []QPOptions{unreliable, reliable} {
		if err := (exchange{newEnd(t, a, opt), newEnd(t, b, opt), 20}).run(); err != nil {
			t.Errorf("afterwards, %+v: %v", opt, err)
		}
	}
}

// randomPacket returns random octets, or a packet with random fields and a correct CRC.
func randomPacket(rng *rand.Rand, targets []*end) []byte {
	fill := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	if rng.IntN(4) == 0 {
		return fill(rng.IntN(1400))
	}
	target := targets[rng.IntN(len(targets))]
	k := wire.Packet{Header: wire.NewHeader(wire.Kind(rng.IntN(6)), uint32(target.QP.QPN()), rng.Uint32()%32, testKey)}
	if rng.IntN(4) == 0 {
		k.DstQP = rng.Uint32() % 64
	}
	if rng.IntN(4) == 0 {
		k.Key = rng.Uint32()
	}
	k.Flags = wire.Flags(rng.Uint32())
	k.Ack.Epoch, k.Data.Epoch = wire.Epoch(rng.Uint32()%4), wire.Epoch(rng.Uint32()%4)
	k.ULPDU = fill(rng.IntN(64))
	if len(k.ULPDU) > 1 && rng.IntN(2) == 0 {
		k.ULPDU[0], k.ULPDU[1] = []byte{0x41, 0xc1}[rng.IntN(2)], 0x40|byte(rng.IntN(16))
	}
	b := k.Append(nil)
	if rng.IntN(8) == 0 {
		b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
	}
	return b
}

// Goroutines of one program may share a device.
func TestConcurrentUse(t *testing.T) {
	a, b := loopbackPair(t)
	var wg sync.WaitGroup
	errs := make(chan error, 16)
	for i := range 4 {
		opt := QPOptions{Reliable: i%2 == 0}
		x, y := newEnd(t, a, opt), newEnd(t, b, opt)
		wg.Go(func() {
			if err := (exchange{x, y, 30}).run(); err != nil {
				errs <- fmt.Errorf("%+v: %w", opt, err)
			}
		})
	}
	wg.Go(func() {
		for range 50 {
			a.Counters()
			if _, err := b.QueryPort(1); err != nil {
				errs <- err
			}
			time.Sleep(time.Millisecond)
		}
	})
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
}
