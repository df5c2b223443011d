package netns_test

import (
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/netns/topology"
)

// quietFor is how long a test waits to see that nothing arrives. Packets on
// these links take microseconds.
const quietFor = 20 * time.Millisecond

func TestSetLinkDownAndUp(t *testing.T) {
	t.Parallel()
	for name, top := range map[string]topology.Topology{
		"pair": pair(t, topology.Options{Rails: 2}),
		"star": star(t, 3, topology.Options{Rails: 2}),
		"tree": tree(t, 2, 2, 3, topology.Options{Rails: 2}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := build(t, top, netns.Options{})
			for _, ipv4 := range families {
				testSetLink(t, f, ipv4)
			}
		})
	}
}

func testSetLink(t *testing.T, f *netns.Fabric, ipv4 bool) {
	a, b := socket(t, f, "host0", 0, ipv4, testPort), socket(t, f, "host1", 0, ipv4, testPort)
	for round := range 3 {
		must.Do(t, f.SetLink("host1/rdma0", false))
		must.Do(t, f.SetLink("host1/rdma0", false)) // no change
		send(t, a, addrOf(f, "host1", 0, ipv4), "lost")
		send(t, b, addrOf(f, "host0", 0, ipv4), "lost") // dropped silently
		if got := append(pending(t, a, quietFor), pending(t, b, quietFor)...); got != nil {
			t.Fatalf("received %q over a cable that is down", got)
		}
		if s := stats(t, f, "host0/rdma0"); s.QueueDropped != 0 {
			t.Errorf("%d packets that a cut cable dropped count as drops of a rate limit or netem", s.QueueDropped)
		}
		if pair := len(f.Topology().Switches) == 0; !pair && carrier(t, f, "host1", "rdma0") {
			t.Error("host1 has a carrier on a cut cable")
		}
		if !carrier(t, f, "host1", "rdma1") {
			t.Error("the other rail of host1 lost its carrier")
		}
		must.Do(t, f.SetLink("host1/rdma0", true))
		if !carrier(t, f, "host1", "rdma0") {
			t.Error("host1 has no carrier on a healed cable")
		}
		want := fmt.Sprint("healed ", round)
		send(t, a, addrOf(f, "host1", 0, ipv4), want)
		send(t, b, addrOf(f, "host0", 0, ipv4), want)
		for _, c := range []*net.UDPConn{a, b} {
			if got, _ := receive(t, c); got != want {
				t.Fatalf("got %q, want %q", got, want)
			}
		}
	}
	everyPairElse(t, f, ipv4, a, b)
}

// everyPairElse closes the sockets in use and calls everyPair.
func everyPairElse(t *testing.T, f *netns.Fabric, ipv4 bool, open ...*net.UDPConn) {
	t.Helper()
	for _, c := range open {
		c.Close()
	}
	everyPair(t, f, ipv4)
}

// carrier reads the carrier state inside the host.
func carrier(t *testing.T, f *netns.Fabric, host, nic string) bool {
	t.Helper()
	var flags net.Flags
	must.Do(t, f.Host(host).NS.Do(func() error {
		i, err := net.InterfaceByName(nic)
		if err == nil {
			flags = i.Flags
		}
		return err
	}))
	return flags&net.FlagRunning != 0
}

// Flows from many ports use all spines. With cables to a spine down they use
// the others in both directions, without loss once SetLink has returned; after
// SetLink up, all again.
func TestFatTreeReroutesAroundDownCables(t *testing.T) {
	t.Run("kernel", func(t *testing.T) {
		t.Parallel()
		checkReroutes(t, build(t, tree(t, 2, spines, 2, topology.Options{}), netns.Options{}))
	})
	t.Run("user-space", func(t *testing.T) {
		t.Parallel()
		f := build(t, tree(t, 2, spines, 2, topology.Options{}), netns.Options{UserCable: func(topology.Cable) bool { return true }})
		for i, c := range f.UserCables() {
			joinInCore(t, f, fmt.Sprint("join", i), c.A, c.B)
		}
		checkReroutes(t, f)
	})
}

// spines is the number of spines of the fat tree in checkReroutes.
const spines = 4

// checkReroutes sets cables of a fat tree down and up, and checks which spines flows use.
func checkReroutes(t *testing.T, f *netns.Fabric) {
	t.Helper()
	for _, h := range f.Topology().Hosts {
		// The IPv6 flow label would distinguish flows whatever routers hash.
		must.Do(t, f.Host(h.Name).NS.Do(func() error { return os.WriteFile("/proc/sys/net/ipv6/auto_flowlabels", []byte("0"), 0) }))
	}
	for _, ipv4 := range families {
		if used := spinesUsed(t, f, ipv4); used != "0123" {
			t.Errorf("IPv4 %v: 128 flows went over the spines %q, want all of 0123", ipv4, used)
		}
		must.Do(t, f.SetLink("spine1/port0", false)) // to leaf0
		if used := spinesUsed(t, f, ipv4); used != "023" {
			t.Errorf("IPv4 %v: with spine1 off leaf0, flows went over the spines %q, want 023", ipv4, used)
		}
		must.Do(t, f.SetLink("spine2/port1", false)) // to leaf1
		must.Do(t, f.SetLink("leaf0/port4", false))  // to spine3
		if used := spinesUsed(t, f, ipv4); used != "0" {
			t.Errorf("IPv4 %v: with one spine left, flows went over the spines %q", ipv4, used)
		}
		must.Do(t, f.SetLink("leaf1/port1", false)) // to spine0
		a, b := socket(t, f, "host0", 0, ipv4, testPort), socket(t, f, "host1", 0, ipv4, testPort)
		send(t, a, addrOf(f, "host1", 0, ipv4), "lost")
		if got := pending(t, b, quietFor); got != nil {
			t.Errorf("IPv4 %v: received %q without a path", ipv4, got)
		}
		a.Close()
		b.Close()
		for _, p := range []string{"spine1/port0", "spine2/port1", "leaf0/port4", "leaf1/port1"} {
			must.Do(t, f.SetLink(p, true))
		}
		if used := spinesUsed(t, f, ipv4); used != "0123" {
			t.Errorf("IPv4 %v: healed, flows went over the spines %q, want all of 0123", ipv4, used)
		}
	}
}

// spinesUsed sends 64 flows in each direction and returns the spines that
// forwarded more than a few of them.
func spinesUsed(t *testing.T, f *netns.Fabric, ipv4 bool) string {
	t.Helper()
	before := make([]uint64, spines)
	for s := range spines {
		before[s] = stats(t, f, fmt.Sprintf("spine%d/port0", s)).RxPackets + stats(t, f, fmt.Sprintf("spine%d/port1", s)).RxPackets
	}
	conns := map[string]*net.UDPConn{}
	for _, h := range []string{"host0", "host1"} {
		conns[h] = socket(t, f, h, 0, ipv4, testPort)
		defer conns[h].Close()
	}
	for flow := range 64 {
		for from, to := range map[string]string{"host0": "host1", "host1": "host0"} {
			c := socket(t, f, from, 0, ipv4, uint16(49152+flow))
			want := fmt.Sprint("flow ", flow, " of ", from)
			send(t, c, addrOf(f, to, 0, ipv4), want)
			if got, _ := receive(t, conns[to]); got != want {
				t.Fatalf("got %q, want %q", got, want)
			}
			c.Close()
		}
	}
	// The bridges of joinInCore send multicast listener reports, too.
	const few = 8
	used := ""
	for s := range spines {
		now := stats(t, f, fmt.Sprintf("spine%d/port0", s)).RxPackets + stats(t, f, fmt.Sprintf("spine%d/port1", s)).RxPackets
		if now > before[s]+few {
			used += fmt.Sprint(s)
		}
	}
	return used
}

func TestSetRateLimitsThroughput(t *testing.T) {
	f := build(t, star(t, 2, topology.Options{Links: map[string]topology.Link{"host1": {RateBps: 40e6}}}), netns.Options{})
	for _, c := range []struct {
		set         uint64
		least, most float64 // Mb/s
	}{
		{0, 12, 40}, // of the topology
		{10e6, 3, 10},
		{400e6, 44, 400},
	} {
		if c.set != 0 {
			must.Do(t, f.SetRate("host1", c.set))
		}
		testRate(t, f, "host0", "host1", c.least, c.most)
		testRate(t, f, "host1", "host0", c.least, c.most)
	}
	must.Do(t, f.SetRate("host1", 0))
	// The qdiscs are deleted, but their drop counts are kept.
	if s := stats(t, f, "switch0/port1"); s.QueueDropped == 0 {
		t.Errorf("more was sent than the rate allows, and no drop was counted: %+v", s)
	}
	testRate(t, f, "host0", "host1", 440, 1e6)
}

// testRate sends as fast as it can and reads the kernel's counters at the other
// end. It retries, because a busy machine may send too little or count late.
func testRate(t *testing.T, f *netns.Fabric, from, to string, least, most float64) {
	t.Helper()
	stop := make(chan struct{})
	var senders sync.WaitGroup
	defer func() {
		close(stop)
		senders.Wait()
	}()
	// Queued packets fill the socket's send buffer: use enough sockets to
	// exceed the queue.
	for i := range 4 {
		a := socket(t, f, from, 0, false, testPort+uint16(i))
		senders.Go(func() {
			defer a.Close()
			payload := make([]byte, 1400)
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := a.WriteToUDPAddrPort(payload, addrOf(f, to, 0, false)); err != nil {
					time.Sleep(100 * time.Microsecond) // the queue is full
				}
			}
		})
	}
	time.Sleep(20 * time.Millisecond) // until the initial burst is sent
	measure := func(during time.Duration) (mbps float64) {
		start, before := time.Now(), stats(t, f, to+"/rdma0").RxBytes
		time.Sleep(during)
		after, span := stats(t, f, to+"/rdma0").RxBytes, time.Since(start)
		return float64(after-before) * 8 / span.Seconds() / 1e6
	}
	var got float64
	for range 100 {
		got = measure(100 * time.Millisecond)
		if slack := 1.1*most + 3; got > slack { // the burst
			if got = measure(2 * time.Second); got > slack {
				t.Fatalf("%s to %s: %.1f Mb/s, want up to %v", from, to, got, most)
			}
		}
		if got >= least {
			return
		}
	}
	t.Errorf("%s to %s: %.1f Mb/s, want from %v to %v", from, to, got, least, most)
}

func TestNetemWorksOrReportsMissingModule(t *testing.T) {
	f := build(t, star(t, 2, topology.Options{}), netns.Options{})
	err := f.Netem("host0", netns.NetemSpec{LossPPM: 1e6})
	if err != nil {
		if !strings.Contains(err.Error(), "sch_netem") || !strings.Contains(err.Error(), "host0") {
			t.Errorf("error %v, want one that names the port and the module", err)
		}
		everyPair(t, f, false) // nothing has changed
		return
	}
	a, b := socket(t, f, "host0", 0, false, testPort), socket(t, f, "host1", 0, false, testPort)
	send(t, a, addrOf(f, "host1", 0, false), "lost")
	if got := pending(t, b, quietFor); got != nil {
		t.Errorf("received %q through netem with a loss of 100%%", got)
	}
	must.Do(t, f.Netem("host0", netns.NetemSpec{}))
	everyPairElse(t, f, false, a, b)
}

func TestFaultsRejectUnknownPorts(t *testing.T) {
	f := build(t, star(t, 2, topology.Options{Rails: 2}), netns.Options{})
	closed := build(t, pair(t, topology.Options{}), netns.Options{})
	must.Do(t, closed.Close())
	if err := closed.SetLink("host0", false); err == nil || !strings.Contains(err.Error(), "the fabric is closed") {
		t.Errorf("a link of a closed fabric: %v", err)
	}
	for port, want := range map[string]string{
		"host7":       `no port matches "host7"`,
		"host0":       "it could be host0/rdma0 or host0/rdma1",
		"host*/rdma0": "is a pattern; the name of a single port",
	} {
		_, stats := f.Stats(port)
		for _, err := range []error{f.SetLink(port, false), f.SetRate(port, 1), f.Netem(port, netns.NetemSpec{}), stats} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v, want one with %q", port, err, want)
			}
		}
	}
}

func TestRDMALinkAddReportsMissingModule(t *testing.T) {
	f := build(t, pair(t, topology.Options{}), netns.Options{})
	ns := f.Host("host0").NS
	for _, kind := range []string{"rxe", "siw"} {
		err := netns.RDMALinkAdd(ns, kind, "fabtest0", "rdma0")
		if err == nil {
			must.Do(t, ns.Do(func() error { return netlink.RdmaLinkDel("fabtest0") }))
			continue
		}
		known := []string{"CONFIG_INFINIBAND", "real root only", "modprobe"}
		if !strings.Contains(err.Error(), kind) || !anyIn(err.Error(), known) {
			t.Errorf("error %v, want one with %s and one of %q", err, kind, known)
		}
	}
	if err := netns.RDMALinkAdd(ns, "irdma", "x", "rdma0"); err == nil || !strings.Contains(err.Error(), "rxe and siw") {
		t.Errorf("an unknown kind: %v", err)
	}
}

func anyIn(s string, parts []string) bool {
	for _, p := range parts {
		if strings.Contains(s, p) {
			return true
		}
	}
	return false
}

// A failed SetLink does not change the state: the next attempt is made, and
// fails too.
func TestFailedSetLinkKeepsState(t *testing.T) {
	f := build(t, star(t, 3, topology.Options{}), netns.Options{})
	must.Do(t, f.Host("host1").NS.Do(func() error {
		dev, err := netlink.LinkByName("rdma0")
		if err != nil {
			return err
		}
		return netlink.LinkDel(dev) // and its peer, the port of the switch
	}))
	for range 2 {
		if err := f.SetLink("host1", false); err == nil {
			t.Fatal("SetLink succeeded without an interface")
		}
	}
	must.Do(t, f.SetLink("host2", false)) // other cables still work
	must.Do(t, f.SetLink("host2", true))
}
