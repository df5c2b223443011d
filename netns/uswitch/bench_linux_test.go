package uswitch

import (
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

const (
	roceMTU     = 4200
	rocePayload = 4140 // 4 KiB and RoCEv2's headers
)

// BenchmarkForward moves RoCE-sized datagrams from one host to another through a
// wire of ours, in the same run as through the cable alone, and says what the
// switch's thread used.
func BenchmarkForward(b *testing.B) {
	for _, traffic := range []struct {
		name     string
		segments int
	}{{"super-packets", 15}, {"single", 1}} {
		b.Run(traffic.name, func(b *testing.B) {
			var plain, through, impaired, delayed stream
			var cpu [3]time.Duration
			for b.Loop() {
				plain = plainLoad(b, traffic.segments)
				through, cpu[0] = wireLoad(b, traffic.segments, nil)
				impaired, cpu[1] = wireLoad(b, traffic.segments, func(c *Config) {
					for i := range c.Ports {
						c.Ports[i].In, c.Ports[i].Out = newLossy(uint64(i), 10_000), newLossy(uint64(i+9), 10_000)
					}
				})
				delayed, cpu[2] = wireLoad(b, traffic.segments, func(c *Config) {
					c.Ports[0].In = &delay{by: 20 * time.Microsecond}
				})
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(plain.gbps(), "veth-Gb/s")
			for i, r := range []struct {
				name string
				stream
			}{{"wire", through}, {"loss", impaired}, {"delay", delayed}} {
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

func wireLoad(b *testing.B, segments int, change func(*Config)) (stream, time.Duration) {
	b.Helper()
	at, hosts := cables(b, 2, roceMTU)
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
	x, y := newNamespace(b), newNamespace(b)
	addrs := [2]netip.Addr{netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")}
	must(b, x.do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = hostDevice, roceMTU
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: hostDevice, PeerMTU: roceMTU, PeerNamespace: netlink.NsFd(int(y.f.Fd()))})
	}))
	var hosts [2]*host
	for i, ns := range []*namespace{x, y} {
		hosts[i] = &host{namespace: ns, v4: netip.AddrFrom4([4]byte{10, 7, 0, byte(i + 1)}), v6: addrs[i]}
		must(b, ns.do(hosts[i].configure))
	}
	for _, h := range hosts {
		must(b, h.do(h.waitReady))
	}
	tx, rx := openUDP(b, x.do, addrs[0]), openUDP(b, y.do, addrs[1])
	must(b, tx.send(rx.addr, make([]byte, 8), 0)) // finds the neighbour
	rx.receive()
	load(b, tx, rx, rocePayload, segments, 1<<20, loadTime/10)
	return load(b, tx, rx, rocePayload, segments, 1<<20, loadTime)
}
