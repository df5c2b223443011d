package sim

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/linktest"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
)

func TestPortImplementsPacketLink(t *testing.T) {
	for name, tc := range map[string]struct {
		cfg  NetConfig
		a, b string
	}{
		"cable, IPv4":  {NetConfig{Cable: true}, "10.0.0.1", "10.0.0.2"},
		"switch, IPv6": {NetConfig{}, "fd00::1", "fd00::2"},
	} {
		t.Run(name, func(t *testing.T) {
			linktest.TestPacketLink(t, func(t *testing.T) linktest.Bench {
				w := New(Config{})
				n := newNet(t, w, tc.cfg)
				l := LinkConfig{RateBps: 1e9, Latency: time.Microsecond}
				b := linktest.Bench{
					AddrA:            netip.AddrPortFrom(netip.MustParseAddr(tc.a), 50000),
					AddrB:            netip.AddrPortFrom(netip.MustParseAddr(tc.b), 4791),
					TimeAfterArrival: func() mono.Time { mustRun(t, w); return w.Now() },
				}
				b.A = must.Get(n.Attach(PortConfig{Addrs: []netip.Addr{b.AddrA.Addr()}, Link: l}))(t)
				b.B = must.Get(n.Attach(PortConfig{Addrs: []netip.Addr{b.AddrB.Addr()}, Link: l}))(t)
				return b
			})
		})
	}
}

func TestCableAddsRateAndLatencyOnce(t *testing.T) {
	w := New(Config{})
	a, b := pair(t, w, LinkConfig{RateBps: 8e9, Latency: 500}) // a byte a nanosecond
	a.send(t, b, sized(100), sized(1000), sized(28))
	mustRun(t, w)
	if want := []mono.Time{600, 1600, 1628}; !slices.Equal(b.times(), want) {
		t.Errorf("arrivals %v, want %v", b.times(), want)
	}
}

func TestSwitchIsStoreAndForward(t *testing.T) {
	w := New(Config{})
	h := star(t, w, 2, LinkConfig{RateBps: 8e9, Latency: 500})
	h[0].send(t, h[1], sized(100), sized(1000))
	mustRun(t, w)
	// The first: 100 + 500 to the switch, and the same again. The second reaches
	// the switch at 1600, and goes on at once.
	if want := []mono.Time{1200, 3100}; !slices.Equal(h[1].times(), want) {
		t.Errorf("arrivals %v, want %v", h[1].times(), want)
	}
}

func TestOverheadBytesUseBandwidth(t *testing.T) {
	w := New(Config{})
	a, b := pair(t, w, LinkConfig{RateBps: 8e9, OverheadBytes: 38})
	a.send(t, b, sized(62), sized(62))
	mustRun(t, w)
	if want := []mono.Time{100, 200}; !slices.Equal(b.times(), want) {
		t.Errorf("arrivals %v, want %v", b.times(), want)
	}
	if s := a.Stats(); s.Sent != 2 || s.SentBytes != 124 {
		t.Errorf("stats %+v: bytes are those of IP packets", s)
	}
}

func TestSaturatedLinkCarriesExactRate(t *testing.T) {
	w := New(Config{})
	const rate = 3_333_333_333
	a, b := pair(t, w, LinkConfig{RateBps: rate, TxQueueBytes: 10_000})
	total, next := 0, 0
	fill := HandlerFunc(func(now mono.Time, _ uint64) {
		for ; next < 5000; next++ {
			size := 28 + (next*7919)%1473
			if a.send(t, b, sized(size)) == 0 {
				return
			}
			total += size
		}
	})
	a.OnWritable(fill, 0)
	fill(0, 0)
	mustRun(t, w)
	want := mono.Time(uint64(total) * 8e9 / rate)
	if len(b.got) != 5000 || w.Now() != want {
		t.Errorf("%d packets, %d bytes took %d, want %d", len(b.got), total, w.Now(), want)
	}
}

func TestUnimpairedLinkKeepsOrder(t *testing.T) {
	w := New(Config{Seed: 1})
	h := star(t, w, 4, LinkConfig{RateBps: 1e9, Latency: 10_000})
	r := w.Rand("test")
	sent := make(map[int][]int)
	for i := range 900 {
		from := r.IntN(3)
		sent[from] = append(sent[from], i)
		w.AtFunc(mono.Time(r.IntN(50)+i*100), func() { h[from].send(t, h[3], append(numbered(i), make([]byte, (i*31)%1000)...)) })
	}
	// With 50 ns of jitter and steps of 100 ns, each sender's packets stay in order.
	mustRun(t, w)
	got := make(map[int][]int)
	numbers := h[3].numbers()
	for i, a := range h[3].got {
		from := int(a.d.Src.Addr().As4()[3]) - 1
		got[from] = append(got[from], numbers[i])
	}
	for from := range 3 {
		if !slices.Equal(got[from], sent[from]) {
			t.Errorf("from host %d: got %v, want %v", from, got[from], sent[from])
		}
	}
	if d := h[3].Stats().Drops; d != (Drops{}) {
		t.Errorf("%d drops on a clean link", d)
	}
}

func TestFullSwitchQueueDrops(t *testing.T) {
	w := New(Config{})
	n := newNet(t, w, NetConfig{})
	fast := LinkConfig{RateBps: 80e9}
	a := attach(t, n, PortConfig{Link: fast})
	b := attach(t, n, PortConfig{Link: fast})
	c := attach(t, n, PortConfig{Link: LinkConfig{RateBps: 8e9, QueueBytes: 3000}})
	for range 5 {
		a.send(t, c, sized(1000))
		b.send(t, c, sized(1000))
	}
	mustRun(t, w)
	// Ten packets arrive in pairs every 100 ns and leave one per 1000 ns: three fit.
	if s := c.Stats(); s.Drops != (Drops{QueueFull: 7}) || s.Delivered != 3 || s.QueueBytesMax != 3000 {
		t.Errorf("stats %+v", s)
	}
	if want := []mono.Time{1100, 2100, 3100}; !slices.Equal(c.times(), want) {
		t.Errorf("arrivals %v, want %v", c.times(), want)
	}
}

func TestFullTxQueueStopsSendWithoutLoss(t *testing.T) {
	w := New(Config{})
	a, b := pair(t, w, LinkConfig{RateBps: 8e9, TxQueueBytes: 2500})
	var writable []mono.Time
	a.OnWritable(HandlerFunc(func(now mono.Time, arg uint64) {
		if arg != 9 {
			t.Errorf("arg %d", arg)
		}
		writable = append(writable, now)
	}), 9)
	if n := a.send(t, b, sized(1000), sized(1000), sized(1000), sized(1000)); n != 2 {
		t.Fatalf("took %d, want 2", n)
	}
	mustRun(t, w)
	if want := []mono.Time{1000}; !slices.Equal(writable, want) {
		t.Errorf("writable at %v, want %v: when the first is transmitted", writable, want)
	}
	if n := a.send(t, b, sized(1500)); n != 1 || len(b.got) != 2 || a.Stats().Drops != (Drops{}) {
		t.Errorf("took %d, %d arrived, stats %+v", n, len(b.got), a.Stats())
	}
}

func TestOnePacketAlwaysFitsTxQueue(t *testing.T) {
	w := New(Config{})
	a, b := pair(t, w, LinkConfig{RateBps: 8e9, TxQueueBytes: 10})
	if n := a.send(t, b, sized(1000), sized(1000)); n != 1 {
		t.Errorf("took %d, want 1", n)
	}
}

func TestFullRxQueueDrops(t *testing.T) {
	w := New(Config{})
	a, b := pair(t, w, LinkConfig{RxQueueBytes: 2000})
	b.OnReadable(nil, 0)
	a.send(t, b, sized(1000), sized(1000), sized(1000))
	mustRun(t, w)
	if s := b.Stats(); s.Drops != (Drops{ReceiveFull: 1}) || s.Delivered != 2 {
		t.Errorf("stats %+v", s)
	}
	b.HandleEvent(0, 0)
	a.send(t, b, sized(1000))
	mustRun(t, w)
	if s := b.Stats(); s.Delivered != 3 {
		t.Errorf("after reading: stats %+v", s)
	}
}

func TestPacketLargerThanMTUIsDropped(t *testing.T) {
	w := New(Config{})
	n := newNet(t, w, NetConfig{})
	a := attach(t, n, PortConfig{Link: LinkConfig{MTU: 9000}})
	b := attach(t, n, PortConfig{Link: LinkConfig{MTU: 4200}})
	a.send(t, b, sized(9001), sized(9000), sized(4201), sized(4200))
	mustRun(t, w)
	if len(b.got) != 1 || a.Stats().Drops != (Drops{TooBig: 1}) || b.Stats().Drops != (Drops{TooBig: 2}) {
		t.Errorf("%d arrived; a %+v, b %+v", len(b.got), a.Stats(), b.Stats())
	}
}

func TestUnknownAddressIsDropped(t *testing.T) {
	w := New(Config{})
	a, b := pair(t, w, LinkConfig{})
	d := a.to(b, nil)
	d.Dst = netip.MustParseAddrPort("10.9.9.9:4791")
	if n, err := a.Send(0, []link.Datagram{d}); n != 1 || err != nil {
		t.Fatalf("Send = %d, %v: a dropped datagram counts as sent", n, err)
	}
	mustRun(t, w)
	if a.Stats().Drops != (Drops{NoRoute: 1}) {
		t.Errorf("stats %+v", a.Stats())
	}
}

func TestPortCanSendToItself(t *testing.T) {
	w := New(Config{})
	h := star(t, w, 2, LinkConfig{Latency: 100})
	h[0].send(t, h[0], numbered(1))
	mustRun(t, w)
	if want := []mono.Time{200}; !slices.Equal(h[0].times(), want) || len(h[1].got) != 0 {
		t.Errorf("arrivals %v, want %v", h[0].times(), want)
	}
}

func TestSendFillsInMissingHeaderFields(t *testing.T) {
	w := New(Config{})
	n := newNet(t, w, NetConfig{})
	v6 := netip.MustParseAddr("fd00::7")
	a := attach(t, n, PortConfig{Addrs: []netip.Addr{addrOf(0), v6}})
	b := attach(t, n, PortConfig{Addrs: []netip.Addr{addrOf(1), netip.MustParseAddr("fd00::8")}})
	spoofed := netip.MustParseAddrPort("10.66.66.66:1")
	must.Get(a.Send(0, []link.Datagram{
		{Dst: b.addr, IPID: link.IPIDUnknown},
		{Dst: netip.MustParseAddrPort("[::ffff:10.0.0.2]:4791"), Src: netip.MustParseAddrPort("[::ffff:10.0.0.1]:5"), IPID: 0xffff, HopLimit: 1, TClass: 0xff},
		{Dst: netip.MustParseAddrPort("[fd00::8%eth0]:4791"), IPID: 77, FlowLabel: 0xabcde},
		{Dst: b.addr, Src: spoofed},
	}))(t)
	mustRun(t, w)
	want := []link.Datagram{
		{Src: netip.AddrPortFrom(addrOf(0), 0), Dst: b.addr, HopLimit: 64},
		{Src: netip.AddrPortFrom(addrOf(0), 5), Dst: b.addr, HopLimit: 1, IPID: 0xffff, TClass: 0xff},
		{Src: netip.AddrPortFrom(v6, 0), Dst: netip.MustParseAddrPort("[fd00::8]:4791"), HopLimit: 64, FlowLabel: 0xabcde},
		{Src: spoofed, Dst: b.addr, HopLimit: 64},
	}
	for i, a := range b.got {
		a.d.Payload = nil
		if w := want[i]; a.d.Src != w.Src || a.d.Dst != w.Dst || a.d.HopLimit != w.HopLimit || a.d.IPID != w.IPID || a.d.TClass != w.TClass || a.d.FlowLabel != w.FlowLabel {
			t.Errorf("datagram %d: %+v, want %+v", i, a.d, w)
		}
	}
	if len(b.got) != len(want) {
		t.Errorf("%d of %d arrived", len(b.got), len(want))
	}
}

func TestECNMarksAboveThreshold(t *testing.T) {
	w := New(Config{})
	n := newNet(t, w, NetConfig{})
	a := attach(t, n, PortConfig{Link: LinkConfig{}})
	b := attach(t, n, PortConfig{Link: LinkConfig{RateBps: 8e9, ECN: ECNConfig{MinBytes: 2000, MaxBytes: 2000}}})
	for i, ecn := range []uint8{link.ECT0, link.ECT0, link.ECT0, link.ECT0, link.NotECT, link.ECT1, link.CE} {
		d := a.to(b, append(numbered(i), sized(996)...))
		d.TClass = ecn
		must.Get(a.Send(0, []link.Datagram{d}))(t)
	}
	mustRun(t, w)
	var got []uint8
	for _, x := range b.got {
		got = append(got, x.d.ECNBits())
	}
	// Successive packets find 0, 1000, 2000, 3000, … bytes in the queue.
	want := []uint8{link.ECT0, link.ECT0, link.ECT0, link.CE, link.NotECT, link.CE, link.CE}
	if !slices.Equal(got, want) || b.Stats().Marked != 2 {
		t.Errorf("ECN %v, want %v; marked %d", got, want, b.Stats().Marked)
	}
}

func TestECNMarkProbabilityGrowsWithQueue(t *testing.T) {
	w := New(Config{Seed: 2})
	n := newNet(t, w, NetConfig{})
	a := attach(t, n, PortConfig{})
	b := attach(t, n, PortConfig{Link: LinkConfig{RateBps: 8e9, ECN: ECNConfig{MinBytes: 0, MaxBytes: 10_000, MaxPPM: 500_000}}})
	const rounds = 4000
	for r := range rounds { // bursts of eleven find the queue at 0, 1000 … 10000
		w.AtFunc(mono.Time(r*20_000), func() {
			for i := range 11 {
				d := a.to(b, append(numbered(i), sized(996)...))
				d.TClass = link.ECT0
				must.Get(a.Send(0, []link.Datagram{d}))(t)
			}
		})
	}
	mustRun(t, w)
	var marked [11]int
	numbers := b.numbers()
	for i, x := range b.got {
		if x.d.ECNBits() == link.CE {
			marked[numbers[i]]++
		}
	}
	for i, got := range marked {
		if want := rounds * i / 20; got < want-150 || got > want+150 {
			t.Errorf("at %d bytes: %d of %d marked, want about %d", i*1000, got, rounds, want)
		}
	}
}

func TestAttachRejectsInvalidConfig(t *testing.T) {
	w := New(Config{})
	n := newNet(t, w, NetConfig{Name: "lab"})
	good := PortConfig{Name: "a", Addrs: []netip.Addr{addrOf(0)}}
	must.Get(n.Attach(good))(t)
	addr := []netip.Addr{addrOf(1)}
	for _, tc := range []struct {
		cfg  PortConfig
		want string
	}{
		{PortConfig{Name: "a", Addrs: addr}, "net lab: port a: the name is taken"},
		{PortConfig{Name: "b"}, "no address"},
		{PortConfig{Addrs: []netip.Addr{netip.MustParseAddr("::ffff:10.0.0.1")}}, "port1: address 10.0.0.1 is taken by port a"},
		{PortConfig{Addrs: []netip.Addr{addrOf(1), addrOf(1)}}, "given twice"},
		{PortConfig{Addrs: []netip.Addr{netip.MustParseAddr("224.0.0.1")}}, "not a unicast address"},
		{PortConfig{Addrs: []netip.Addr{{}}}, "not a unicast address"},
		{PortConfig{Addrs: addr, Link: LinkConfig{MTU: 67}}, "MTU 67"},
		{PortConfig{Addrs: addr, Link: LinkConfig{MTU: 65536}}, "MTU 65536"},
		{PortConfig{Addrs: addr, Link: LinkConfig{Latency: -1}}, "Latency -1ns is negative"},
		{PortConfig{Addrs: addr, Link: LinkConfig{QueueBytes: -1}}, "QueueBytes -1 is negative"},
		{PortConfig{Addrs: addr, Link: LinkConfig{ECN: ECNConfig{MinBytes: 2, MaxBytes: 1}}}, "ECN.MaxBytes 1 is less"},
		{PortConfig{Addrs: addr, Link: LinkConfig{ECN: ECNConfig{MaxPPM: impair.PPM + 1}}}, "ECN.MaxPPM"},
		{PortConfig{Name: "x", Addrs: addr, Up: impair.Config{Specs: []impair.Spec{{Delay: -1}}}}, "port x: impairment up: specs[0]: delay"},
		{
			PortConfig{Name: "x", Addrs: addr, Down: impair.Config{Events: []impair.Event{{Match: impair.Match{Seq: new(uint32(1))}, Action: impair.Action{Kind: impair.Drop}}}}},
			"port x: impairment down: events[0]: match: flow and seq need a dissector",
		},
	} {
		if _, err := n.Attach(tc.cfg); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %q", tc.cfg, err, tc.want)
		}
	}
	if p, err := n.Attach(PortConfig{Addrs: addr}); err != nil || p.Name() != "port1" || n.Port("port1") != p {
		t.Errorf("Attach after a failed one: %v, %v", p, err)
	}
	cable := newNet(t, w, NetConfig{Cable: true})
	for i := range 3 {
		_, err := cable.Attach(PortConfig{Addrs: []netip.Addr{addrOf(i)}})
		if (err != nil) != (i == 2) {
			t.Errorf("end %d of a cable: %v", i, err)
		}
	}
}

func TestNetNamesAreUnique(t *testing.T) {
	w := New(Config{})
	newNet(t, w, NetConfig{Name: "lab"})
	if _, err := NewNet(w, NetConfig{Name: "lab"}); err == nil || !strings.Contains(err.Error(), "net lab: the name is taken") {
		t.Errorf("err %v", err)
	}
	if n := newNet(t, w, NetConfig{}); n.cfg.Name != "net1" {
		t.Errorf("name %q", n.cfg.Name)
	}
}

func TestNewPairReportsErrorsOfBothEnds(t *testing.T) {
	w := New(Config{})
	a, b, err := NewPair(w, NetConfig{}, PortConfig{Addrs: []netip.Addr{addrOf(0)}}, PortConfig{Addrs: []netip.Addr{addrOf(1)}})
	if err != nil || a.Net() != b.Net() || len(a.Net().Ports()) != 2 {
		t.Errorf("%v, %v, %v", a, b, err)
	}
	if _, _, err := NewPair(w, NetConfig{}, PortConfig{}, PortConfig{}); err == nil || strings.Count(err.Error(), "no address") != 2 {
		t.Errorf("err %v", err)
	}
}

func TestPacketsDoNotAllocate(t *testing.T) {
	rough := impair.Config{Specs: []impair.Spec{{LossPPM: 10_000, DuplicatePPM: 100_000, Jitter: 500, CorruptPPM: 100_000}}}
	for name, up := range map[string]impair.Config{"clean": {}, "impaired": rough} {
		w := New(Config{Seed: 1})
		n := newNet(t, w, NetConfig{})
		l := LinkConfig{RateBps: 10e9, Latency: 100}
		a := attach(t, n, PortConfig{Link: l, Up: up})
		b := attach(t, n, PortConfig{Link: l, Down: up})
		var in [16]link.Datagram
		b.OnReadable(HandlerFunc(func(now mono.Time, _ uint64) { _, _ = b.Recv(now, in[:]) }), 0)
		ds := make([]link.Datagram, 32)
		for i := range ds {
			ds[i] = a.to(b, make([]byte, 200))
		}
		run := func() {
			if n, err := a.Send(w.Now(), ds); n != len(ds) || err != nil {
				t.Fatalf("Send = %d, %v", n, err)
			}
			mustRun(t, w)
		}
		for range 200 { // until the pools have grown
			run()
		}
		if n := testing.AllocsPerRun(100, run); n != 0 {
			t.Errorf("%s: 32 packets allocate %v times", name, n)
		}
	}
}

func TestTapSeesSentAndDeliveredPackets(t *testing.T) {
	w := New(Config{})
	a, b := pair(t, w, LinkConfig{Latency: 10})
	type seen struct {
		at   mono.Time
		port string
		dir  Direction
		n    int
	}
	var got []seen
	a.Net().SetTap(func(now mono.Time, p *Port, dir Direction, d *link.Datagram) {
		got = append(got, seen{now, p.Name(), dir, len(d.Payload)})
	})
	a.send(t, b, make([]byte, 5))
	mustRun(t, w)
	if want := []seen{{0, "h0", Out, 5}, {10, "h1", In, 5}}; !slices.Equal(got, want) {
		t.Errorf("tap saw %v, want %v", got, want)
	}
}

func TestClosedPortIsUnreachable(t *testing.T) {
	w := New(Config{})
	h := star(t, w, 2, LinkConfig{Latency: 100})
	group := netip.MustParseAddr("239.0.0.1")
	must.Do(t, h[1].Join(group))
	h[0].send(t, h[1], numbered(1)) // still in flight at Close
	must.Do(t, w.RunUntil(150))
	must.Do(t, h[1].Close())
	h[0].send(t, h[1], numbered(2))
	mustRun(t, w)
	if len(h[1].got) != 0 || h[0].Stats().Drops.NoRoute != 1 || h[1].Stats().Drops.NoRoute != 1 {
		t.Errorf("%d arrived; %+v, %+v", len(h[1].got), h[0].Stats(), h[1].Stats())
	}
	if err := h[1].Join(group); err == nil || !strings.Contains(err.Error(), "Join on port h1: link closed") {
		t.Errorf("Join: %v", err)
	}
	if inUse := h[0].net.packets.made - len(h[0].net.packets.free); inUse != 0 {
		t.Errorf("%d packets leaked", inUse)
	}
	if _, err := h[0].net.Attach(PortConfig{Name: "new", Addrs: h[1].Addrs()}); err != nil {
		t.Errorf("the address of a closed port is in use: %v", err)
	}
}
