package uswitch

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fabrictest/fabrictest/internal/must"
)

const (
	roceMTU     = 4200
	rocePayload = 4140 // 4 KiB and RoCEv2's headers
)

// BenchmarkForward sends RoCE-sized datagrams between two hosts through a two-port switch and
// through a plain cable, and reports the CPU time of the switch.
func BenchmarkForward(b *testing.B) {
	for _, traffic := range []struct {
		name     string
		segments int
	}{{"GSO", 15}, {"single", 1}} {
		b.Run(traffic.name, func(b *testing.B) {
			var plain, through, impaired, segmented, delayed stream
			var cpu [4]time.Duration
			withLoss := func(c *Config) {
				for i := range c.Ports {
					c.Ports[i].In, c.Ports[i].Out = newLossy(uint64(i), 10_000), newLossy(uint64(i+9), 10_000)
				}
			}
			for b.Loop() {
				plain = plainLoad(b, traffic.segments)
				through, cpu[0] = wireLoad(b, traffic.segments, false, nil)
				impaired, cpu[1] = wireLoad(b, traffic.segments, false, withLoss)
				segmented, cpu[2] = wireLoad(b, traffic.segments, true, withLoss)
				delayed, cpu[3] = wireLoad(b, traffic.segments, false, func(c *Config) {
					c.Ports[0].In = delay(20 * time.Microsecond)
				})
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(plain.gbps(), "veth-Gb/s")
			for i, r := range []struct {
				name string
				stream
			}{{"wire", through}, {"loss", impaired}, {"loss-kernel-segments", segmented}, {"delay", delayed}} {
				b.ReportMetric(r.gbps(), r.name+"-Gb/s")
				b.ReportMetric(r.kpps(), r.name+"-kpps")
				b.ReportMetric(r.gbps()/plain.gbps(), r.name+"/veth")
				b.ReportMetric(100*cpu[i].Seconds()/r.elapsed.Seconds(), r.name+"-cpu%")
				b.ReportMetric(float64(r.bytes)*8/float64(cpu[i]), r.name+"-Gb/s/core")
			}
		})
	}
}

const loadTime = 400 * time.Millisecond

func wireLoad(b *testing.B, segments int, kernelSegments bool, change func(*Config)) (stream, time.Duration) {
	b.Helper()
	at, hosts := cables(b, 2, roceMTU)
	if kernelSegments {
		must.Do(b, hosts[0].do(func() error { return DisableGSO(hostDevice) }))
	}
	s := run(b, at, 2, change)
	tx, rx := openUDP(b, hosts[0].do, hosts[0].v6), openUDP(b, hosts[1].do, hosts[1].v6)
	load(b, tx, rx, rocePayload, segments, 1<<20, loadTime/10)
	before := s.Stats().CPU
	r := load(b, tx, rx, rocePayload, segments, 1<<20, loadTime)
	st := s.Stats()
	if d := st.Ports[0].In.Drops.Total() + st.Ports[1].Out.Drops.Total(); d > 0 {
		b.Logf("dropped: in %+v, out %+v", st.Ports[0].In.Drops, st.Ports[1].Out.Drops)
	}
	return r, st.CPU - before
}

func plainLoad(b *testing.B, segments int) stream {
	b.Helper()
	tx, rx := plainSockets(b)
	load(b, tx, rx, rocePayload, segments, 1<<20, loadTime/10)
	return load(b, tx, rx, rocePayload, segments, 1<<20, loadTime)
}

// plainSockets returns sockets of two hosts on a cable without a switch.
func plainSockets(b *testing.B) (tx, rx *udpSocket) {
	b.Helper()
	x, y := newNamespace(b), newNamespace(b)
	addrs := [2]netip.Addr{netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")}
	must.Do(b, x.do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = hostDevice, roceMTU
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: hostDevice, PeerMTU: roceMTU, PeerNamespace: netlink.NsFd(int(y.f.Fd()))})
	}))
	var hosts [2]*host
	for i, ns := range []*namespace{x, y} {
		hosts[i] = &host{namespace: ns, v4: netip.AddrFrom4([4]byte{10, 7, 0, byte(i + 1)}), v6: addrs[i]}
		must.Do(b, ns.do(hosts[i].configure))
	}
	for _, h := range hosts {
		must.Do(b, h.do(h.waitReady))
	}
	tx, rx = openUDP(b, x.do, addrs[0]), openUDP(b, y.do, addrs[1])
	must.Do(b, tx.send(rx.addr, make([]byte, 8), 0)) // resolves the neighbour
	rx.receive()
	return tx, rx
}

// BenchmarkPingPong measures half a round trip of a small datagram while all threads block.
func BenchmarkPingPong(b *testing.B) {
	rounds := func(b *testing.B, x, y *udpSocket) {
		ended := make(chan struct{})
		n := 0
		go func() {
			defer close(ended)
			for {
				p := y.receive()
				if len(p) != 8 {
					return
				}
				_ = y.send(x.addr, p, 0)
			}
		}()
		for b.Loop() {
			must.Do(b, x.send(y.addr, make([]byte, 8), 0))
			if x.receive() == nil {
				b.Fatal("lost")
			}
			n++
		}
		took := b.Elapsed()
		must.Do(b, x.send(y.addr, make([]byte, 9), 0))
		<-ended
		b.ReportMetric(float64(took.Nanoseconds())/float64(2*n)/1e3, "µs/half")
	}
	b.Run("veth", func(b *testing.B) {
		x, y := plainSockets(b)
		rounds(b, x, y)
	})
	for name, path := range map[string]FrameHandler{"wire": nil, "path": newLossy(1, 0)} {
		b.Run(name, func(b *testing.B) {
			at, hosts := cables(b, 2, roceMTU)
			run(b, at, 2, func(c *Config) { c.Ports[0].In = path })
			rounds(b, openUDP(b, hosts[0].do, hosts[0].v6), openUDP(b, hosts[1].do, hosts[1].v6))
		})
	}
}

// BenchmarkTwoStreams compares two switches on one goroutine with two on a goroutine each.
func BenchmarkTwoStreams(b *testing.B) {
	for _, together := range []bool{true, false} {
		b.Run(fmt.Sprintf("together=%v", together), func(b *testing.B) {
			at, hosts := cables(b, 4, roceMTU)
			wires := []*Switch{open(b, at, 2, nil), open(b, at, 2, func(c *Config) {
				for i := range c.Ports {
					c.Ports[i].Interface = portName(2 + i)
				}
			})}
			if together {
				start(b, wires...)
			} else {
				start(b, wires[0])
				start(b, wires[1])
			}
			var sum, bits float64
			for b.Loop() {
				results := make(chan stream, 2)
				for i := range 2 {
					tx, rx := openUDP(b, hosts[2*i].do, hosts[2*i].v6), openUDP(b, hosts[2*i+1].do, hosts[2*i+1].v6)
					go func() { results <- load(b, tx, rx, rocePayload, 15, 1<<20, loadTime) }()
				}
				x, y := <-results, <-results
				sum = x.gbps() + y.gbps()
				bits += float64(x.bytes+y.bytes) * 8
			}
			cpu := wires[0].Stats().CPU
			if !together {
				cpu += wires[1].Stats().CPU
			}
			b.ReportMetric(sum, "Gb/s")
			b.ReportMetric(bits/float64(cpu), "Gb/s/core")
		})
	}
}
