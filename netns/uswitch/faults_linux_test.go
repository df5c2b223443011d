package uswitch

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/internal/must"
)

func device(at *namespace, name string, do func(netlink.Link) error) error {
	return at.do(func() error {
		dev, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return do(dev)
	})
}

// testTimeout is the timeout for expected packets.
const testTimeout = 20 * time.Second

// reaches reports whether a datagram gets from one host to another.
func reaches(t *testing.T, from, to *host) bool { return arrives(t, from, to, testTimeout) }

func arrives(t *testing.T, from, to *host, within time.Duration) bool {
	t.Helper()
	a, b := openUDP(t, from.do, from.v6), openUDP(t, to.do, to.v6)
	b.timeout(t, within)
	_ = a.send(b.addr, []byte("hello"), 0) // fails if the interface is down
	return string(b.receive()) == "hello"
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", testTimeout, what)
		}
	}
}

func TestInterfaceRemovedWhileRunning(t *testing.T) {
	at, hosts := cables(t, 3, 1500)
	s := run(t, at, 3, nil)
	if !reaches(t, hosts[0], hosts[2]) {
		t.Fatal("host 2 is not reachable from host 0")
	}
	must.Do(t, device(at, portName(2), netlink.LinkDel))
	eventually(t, "the port is removed", func() bool { return s.Stats().Ports[2].State == PortRemoved })
	if !reaches(t, hosts[0], hosts[1]) || !reaches(t, hosts[1], hosts[0]) {
		t.Error("hosts 0 and 1 cannot reach each other")
	}
	must.Do(t, s.SetPort(2, true))
	if st := s.Stats().Ports[2].State; st != PortRemoved {
		t.Errorf("a port without an interface is %v", st)
	}
	before := s.Stats().CPU
	time.Sleep(100 * time.Millisecond)
	if used := s.Stats().CPU - before; used > 10*time.Millisecond {
		t.Errorf("used %v in 100 ms: it spins on the removed port", used)
	}
}

// The kernel reports an interface that goes down, and not that it is removed later. Frames that
// were queued before are received in between.
func TestInterfaceRemovedWhileDown(t *testing.T) {
	at, hosts := cables(t, 2, 1500)
	s := must.Get(New(Config{InNamespace: at.do, Ports: []PortConfig{{Interface: portName(0)}, {Interface: portName(1)}}}))(t)
	defer s.Close()
	a, b := openUDP(t, hosts[1].do, hosts[1].v6), openUDP(t, hosts[0].do, hosts[0].v6)
	must.Do(t, a.send(b.addr, []byte("queued"), 0)) // the switch is not running
	must.Do(t, device(at, portName(1), netlink.LinkSetDown))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	eventually(t, "the queued frame is received", func() bool { return s.Stats().Ports[1].In.Frames > 0 })
	must.Do(t, device(at, portName(1), netlink.LinkDel))
	eventually(t, "the port is removed", func() bool { return s.Stats().Ports[1].State == PortRemoved })
	cancel()
	must.Do(t, <-ended)
}

func TestInterfaceGoesDownAndUp(t *testing.T) {
	at, hosts := cables(t, 2, 1500)
	s := run(t, at, 2, nil)
	for range 3 {
		must.Do(t, device(at, portName(1), netlink.LinkSetDown))
		if arrives(t, hosts[0], hosts[1], 50*time.Millisecond) {
			t.Fatal("a frame passed an interface that is down")
		}
		must.Do(t, device(at, portName(1), netlink.LinkSetUp))
		must.Do(t, at.do(func() error { return waitUp(portName(1)) }))
		// With its carrier the host loses its IPv6 addresses and all neighbours.
		must.Do(t, hosts[1].do(func() error { return hosts[1].addNeighbours(hosts) }))
		eventually(t, "frames pass again", func() bool { return arrives(t, hosts[0], hosts[1], 50*time.Millisecond) })
	}
	if st := s.Stats(); st.Ports[1].State != PortUp {
		t.Errorf("port is %v", st.Ports[1].State)
	}
}

func TestOverrunIsCounted(t *testing.T) {
	at, hosts := cables(t, 2, 1500)
	s := must.Get(New(Config{InNamespace: at.do, BufferBytes: 1 << 14, Ports: []PortConfig{{Interface: portName(0)}, {Interface: portName(1)}}}))(t)
	defer s.Close()
	a, b := openUDP(t, hosts[0].do, hosts[0].v6), openUDP(t, hosts[1].do, hosts[1].v6)
	const n = 500
	for range n {
		must.Do(t, a.send(b.addr, make([]byte, 1000), 0)) // the switch is not running
	}
	lost := s.Stats().Ports[0].In.Drops.Overrun
	if lost == 0 || lost >= n+10 {
		t.Fatalf("%d of %d lost", lost, n)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	eventually(t, "all that was not lost has passed, and some chatter", func() bool {
		st := s.Stats()
		return st.Ports[0].In.Frames+lost >= n && st.Ports[1].Out.Frames == st.Ports[0].In.Frames
	})
	cancel()
	must.Do(t, <-ended)
}

func TestMTUMismatchDropsLargeFrames(t *testing.T) {
	at, hosts := cables(t, 2, 9000)
	must.Do(t, device(at, portName(1), func(l netlink.Link) error { return netlink.LinkSetMTU(l, 1500) }))
	s := run(t, at, 2, nil)
	a, b := openUDP(t, hosts[0].do, hosts[0].v6), openUDP(t, hosts[1].do, hosts[1].v6)
	must.Do(t, a.send(b.addr, make([]byte, 4000), 0))
	must.Do(t, a.send(b.addr, make([]byte, 20000), 4000))
	must.Do(t, a.send(b.addr, make([]byte, 1000), 0))
	if d := b.receive(); len(d) != 1000 {
		t.Errorf("received %d bytes, want the 1000", len(d))
	}
	if d := s.Stats().Ports[1].Out.Drops; d.TooBig != 6 {
		t.Errorf("drops %+v, want 6 too big", d)
	}
}

func TestRunAndCloseInAnyOrder(t *testing.T) {
	at, hosts := cables(t, 2, 1500)
	s := must.Get(New(Config{Name: "sw", InNamespace: at.do, Ports: []PortConfig{{Interface: portName(0)}, {Interface: portName(1)}}}))(t)
	for range 3 { // stop and start again
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		eventually(t, "frames pass", func() bool { return arrives(t, hosts[0], hosts[1], time.Second) })
		if err := s.Run(ctx); !errors.Is(err, errRunning) {
			t.Errorf("a second Run: %v", err)
		}
		cancel()
		must.Do(t, <-ended)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(context.Background()) }()
	eventually(t, "frames pass", func() bool { return arrives(t, hosts[0], hosts[1], time.Second) })
	must.Do(t, s.Close())
	must.Do(t, <-ended)
	for name, err := range map[string]error{
		"Close": s.Close(), "Run": s.Run(context.Background()), "SetHandler": s.SetHandler(0, In, nil), "SetPort": s.SetPort(0, true),
	} {
		if !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s of a closed switch: %v", name, err)
		}
	}
	s.Stats()
}

func TestRunServesSeveralSwitches(t *testing.T) {
	at, hosts := cables(t, 4, 1500)
	a, b := open(t, at, 2, nil), open(t, at, 2, func(c *Config) {
		c.Ports[0].Interface, c.Ports[1].Interface = portName(2), portName(3)
		c.Ports[0].In = delay(time.Millisecond)
	})
	ended := make(chan error, 1)
	go func() { ended <- Run(context.Background(), a, b) }()
	for range 3 {
		if !reaches(t, hosts[0], hosts[1]) || !reaches(t, hosts[2], hosts[3]) {
			t.Fatal("not reachable")
		}
	}
	if err := Run(context.Background(), b); !errors.Is(err, errRunning) {
		t.Errorf("a second Run: %v", err)
	}
	must.Do(t, a.Close()) // the other one keeps running
	if !reaches(t, hosts[2], hosts[3]) || arrives(t, hosts[0], hosts[1], 50*time.Millisecond) {
		t.Error("Close of one switch closes the other, or none")
	}
	must.Do(t, b.Close())
	must.Do(t, <-ended)
	must.Do(t, Run(context.Background())) // none
}

func TestRandomFramesAreForwardedUnchanged(t *testing.T) {
	at, hosts := cables(t, 2, 1500)
	s := run(t, at, 2, func(c *Config) {
		c.Ports[0].In, c.Ports[1].Out = spy(func(Frame) {}), delay(100*time.Microsecond)
	})
	from, to := openTap(t, hosts[0]), openTap(t, hosts[1])
	rng := rand.New(rand.NewPCG(5, 6))
	for i := range 500 {
		b := make([]byte, etherLen+rng.IntN(1500))
		for k := range b {
			b[k] = byte(rng.Uint32())
		}
		copy(b, hosts[1].mac)
		if typ := i % 4; typ < 2 && len(b) > 60 { // so that headers are parsed
			b[12], b[13], b[14] = [2]byte{0x08, 0x86}[typ], [2]byte{0x00, 0xdd}[typ], [2]byte{0x45, 0x60}[typ]
			b[23-3*typ] = [2]byte{protoUDP, protoTCP}[i/4%2]
		} else {
			b[12], b[13] = 0x88, 0xb5
		}
		from.send(t, b)
		if got := to.frames(1); len(got) != 1 || string(got[0]) != string(b) {
			t.Fatalf("frame %d of %d bytes arrived changed or not at all", i, len(b))
		}
	}
	if d := s.Stats().Ports[0].In.Drops.Total() + s.Stats().Ports[1].Out.Drops.Total(); d != 0 {
		t.Errorf("%d drops", d)
	}
}

func TestInvalidConfigIsRejected(t *testing.T) {
	at, _ := cables(t, 2, 1500)
	two := []PortConfig{{Interface: portName(0)}, {Interface: portName(1)}}
	for want, cfg := range map[string]Config{
		"a switch has two or more":        {Ports: two[:1]},
		"port 1: no Interface":            {Ports: []PortConfig{two[0], {}}},
		"are both interface port0":        {Ports: []PortConfig{two[0], two[0]}},
		"MaxDelayedBytes is negative":     {Ports: two, MaxDelayedBytes: -1},
		"find interface nosuch":           {Ports: []PortConfig{two[0], {Interface: "nosuch"}}},
		"not an Ethernet address":         {Ports: []PortConfig{two[0], {Interface: portName(1), Addresses: []net.HardwareAddr{broadcast}}}},
		"port1: port port1: find interfa": {Name: "port1", Ports: []PortConfig{two[0], {Interface: "x", Name: "port1"}}},
	} {
		cfg.InNamespace = at.do
		s, err := New(cfg)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if s != nil {
			s.Close()
		}
	}
	s := must.Get(New(Config{InNamespace: at.do, Ports: two}))(t)
	defer s.Close()
	for _, err := range []error{s.SetHandler(2, In, nil), s.SetHandler(0, 7, nil), s.SetPort(5, true)} {
		if err == nil || !strings.Contains(err.Error(), "no port") && !strings.Contains(err.Error(), "no direction") {
			t.Errorf("%v", err)
		}
	}
}

func TestVLANTagIsKept(t *testing.T) {
	at, hosts := cables(t, 2, 1500)
	seen := make(chan []byte, 10)
	run(t, at, 2, func(c *Config) {
		c.Ports[0].In = spy(func(f Frame) {
			if len(f.Bytes) > 16 && f.Bytes[12] == 0x81 {
				seen <- append([]byte(nil), f.Bytes...)
			}
		})
	})
	from, arriving := openTap(t, hosts[0]), openTaggedTap(t, hosts[1])
	b := append(append(append([]byte(nil), hosts[1].mac...), hosts[0].mac...), 0x81, 0, 0x60, 5, 0x88, 0xb5)
	b = append(b, make([]byte, 60)...)
	from.send(t, b)
	select {
	case f := <-seen:
		if string(f) != string(b) {
			t.Errorf("the handler saw\n%x, want\n%x", f, b)
		}
	case <-time.After(testTimeout):
		t.Fatal("no tagged frame reached the handler")
	}
	if tci := arriving.tag(t); tci != 0x6005 {
		t.Errorf("arrived with tag %#x, want 0x6005", tci)
	}
}

// Packets that are cut, or too short for their metadata, are not forwarded.
func TestIncompletePacketsAreLost(t *testing.T) {
	fds := must.Get(unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET, 0))(t)
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	for _, size := range []int{vnetLen - 1, vnetLen + slotBytes - tagRoom + 1, vnetLen + 60, 1} {
		must.Get(unix.Write(fds[0], make([]byte, size)))(t)
	}
	r := newReceiver()
	n, lost, errno := r.receive(fds[1])
	if n != 1 || lost != 3 || errno != 0 || len(r.packets[0].bytes) != 60 {
		t.Errorf("%d packets, the first of %d bytes, %d lost, %v; want 1 of 60 bytes and 3 lost", n, len(r.packets[0].bytes), lost, errno)
	}
	if n, lost, errno := r.receive(fds[1]); n != 0 || lost != 0 || errno != 0 {
		t.Errorf("an empty socket: %d packets, %d lost, %v", n, lost, errno)
	}
}

// A switch that cannot open its ports leaves no open file behind.
func TestFailedNewClosesFiles(t *testing.T) {
	at := newNamespace(t)
	open := func() int { return len(must.Get(os.ReadDir("/proc/self/fd"))(t)) }
	before := open()
	for range 10 {
		err := at.do(func() error {
			_, err := New(Config{Ports: []PortConfig{{Interface: "lo"}, {Interface: "nosuch"}}})
			return err
		})
		if err == nil || !strings.Contains(err.Error(), "find interface nosuch") {
			t.Fatalf("%v, want that the second interface does not exist", err)
		}
	}
	if after := open(); after >= before+10 {
		t.Errorf("%d open files, %d before 10 switches that failed", after, before)
	}
}

func TestUDPGSONeedsKernel62(t *testing.T) {
	for release, want := range map[string]bool{"5.19.0": false, "6.1.0-18-amd64": false, "6.2.0": true, "6.12.1": true, "7.0": true, "unknown": false} {
		if got := releaseSupportsUDPGSO(release); got != want {
			t.Errorf("kernel %s: %t, want %t", release, got, want)
		}
	}
	release := string(must.Get(os.ReadFile("/proc/sys/kernel/osrelease"))(t))
	if got := SupportsUDPGSO(); got != releaseSupportsUDPGSO(release) {
		t.Errorf("this kernel, %s: %t", release, got)
	}
}

func TestSendErrorsAreCountedByCause(t *testing.T) {
	for errno, want := range map[unix.Errno]Drops{unix.EMSGSIZE: {TooBig: 3}, unix.ENETDOWN: {Down: 3}, unix.ENXIO: {Down: 3}, unix.EPERM: {SendErrors: 3}} {
		var d Drops
		if d.countSendError(errno, 3); d != want {
			t.Errorf("%v: %+v, want %+v", errno, d, want)
		}
	}
}
