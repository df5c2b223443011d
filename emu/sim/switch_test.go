package sim

import (
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
)

// tree is a fat tree: hosts on leaves, every leaf on every spine.
type tree struct {
	*Net
	hosts          []*host
	leaves, spines []*Switch
}

// trunk returns the cable between a leaf and a spine.
func (t *tree) trunk(leaf, spine int) *Trunk {
	return t.trunkNames[fmt.Sprintf("leaf%d-spine%d", leaf, spine)]
}

func fatTree(t testing.TB, w *World, leaves, spines, perLeaf int, l LinkConfig, changes ...func(*TrunkConfig)) *tree {
	t.Helper()
	f := &tree{Net: newNet(t, w, NetConfig{Dissector: toy{}})}
	add := func(name string) *Switch {
		s := must.Get(f.AddSwitch(SwitchConfig{Name: name, Routed: true}))(t)
		return s
	}
	for i := range leaves {
		f.leaves = append(f.leaves, add(fmt.Sprint("leaf", i)))
	}
	for i := range spines {
		f.spines = append(f.spines, add(fmt.Sprint("spine", i)))
	}
	for _, a := range f.leaves {
		for _, b := range f.spines {
			cfg := TrunkConfig{A: a, B: b, Link: l}
			for _, change := range changes {
				change(&cfg)
			}
			must.Get(f.AddTrunk(cfg))(t)
		}
	}
	for _, leaf := range f.leaves {
		for range perLeaf {
			f.hosts = append(f.hosts, attach(t, f.Net, PortConfig{Link: l, Switch: leaf}))
		}
	}
	return f
}

// fromPort returns a datagram with the given UDP source port.
func (h *host) fromPort(o *host, port uint16, payload []byte) link.Datagram {
	d := h.to(o, payload)
	d.Src = netip.AddrPortFrom(d.Src.Addr(), port)
	return d
}

func (h *host) must(t testing.TB, ds ...link.Datagram) {
	t.Helper()
	if n, err := h.Send(0, ds); n != len(ds) || err != nil {
		t.Fatalf("Send took %d of %d, %v", n, len(ds), err)
	}
}

// Each switch stores the whole packet before it forwards it: over four cables
// it takes four times as long.
func TestFatTreeDelaysAtEveryHop(t *testing.T) {
	w := New(Config{Seed: 1})
	f := fatTree(t, w, 2, 2, 2, LinkConfig{RateBps: 8e9, Latency: 500})
	near, far := f.hosts[1], f.hosts[2]
	f.hosts[0].must(t, f.hosts[0].to(near, sized(1000)), f.hosts[0].to(far, sized(1000)))
	mustRun(t, w)
	// A packet of 1000 bytes takes 1 µs to send.
	if got := near.times(); !slices.Equal(got, []mono.Time{2 * 1500}) {
		t.Errorf("below the same leaf: arrived at %v, want 3000", got)
	}
	if got := far.times(); !slices.Equal(got, []mono.Time{1000 + 4*1500}) {
		t.Errorf("below another leaf: arrived at %v, want 7000", got)
	}
	if hops := far.got[0].d.HopLimit; hops != defaultHopLimit-3 {
		t.Errorf("hop limit %d, want three less than %d: a leaf, a spine and a leaf", hops, defaultHopLimit)
	}
	if hops := near.got[0].d.HopLimit; hops != defaultHopLimit {
		t.Errorf("hop limit %d under the same leaf, without a router", hops)
	}
}

// spread sends one packet from each of many UDP ports and returns how many
// crossed each spine.
func spread(t *testing.T, f *tree, w *World, flows int) (counts []uint64) {
	t.Helper()
	from, to := f.hosts[0], f.hosts[len(f.hosts)-1]
	for i := range flows {
		from.must(t, from.fromPort(to, uint16(0xc000+i), numbered(i)))
	}
	mustRun(t, w)
	for i := range f.spines {
		up, _ := f.trunk(0, i).Stats()
		counts = append(counts, up.Sent)
	}
	return counts
}

func TestECMPSpreadsFlowsAndKeepsEachOnOnePath(t *testing.T) {
	w := New(Config{Seed: 1})
	f := fatTree(t, w, 2, 4, 1, LinkConfig{})
	counts := spread(t, f, w, 1000)
	for i, n := range counts {
		if n < 200 || n > 300 {
			t.Errorf("spine %d got %d of 1000 flows, want about 250", i, n)
		}
	}
	// The same on every machine and whatever the seed.
	if want := []uint64{259, 242, 247, 252}; !slices.Equal(counts, want) {
		t.Errorf("flows spread %v; recorded were %v", counts, want)
	}
	// The same flows take the same paths again.
	w2 := New(Config{Seed: 2})
	again := fatTree(t, w2, 2, 4, 1, LinkConfig{})
	spread(t, again, w2, 1000)
	if twice := spread(t, again, w2, 1000); !slices.Equal(twice, []uint64{2 * counts[0], 2 * counts[1], 2 * counts[2], 2 * counts[3]}) {
		t.Errorf("the same flows twice: %v, once they were %v", twice, counts)
	}
	// So packets stay in order.
	if got := again.hosts[1].numbers(); len(got) != 2000 {
		t.Errorf("%d packets arrived", len(got))
	}
}

// A leaf avoids its own trunk that is down, but not a spine that has lost its
// trunk to the other leaf.
func TestTrunkDownUsesOtherNextHop(t *testing.T) {
	w := New(Config{Seed: 1})
	f := fatTree(t, w, 2, 2, 1, LinkConfig{Latency: 100})
	f.trunk(0, 0).SetDown()
	if counts := spread(t, f, w, 100); !slices.Equal(counts, []uint64{0, 100}) || len(f.hosts[1].got) != 100 {
		t.Errorf("own trunk down: %v went up, %d arrived", counts, len(f.hosts[1].got))
	}
	f.trunk(0, 0).SetUp()
	f.trunk(1, 0).SetDown()
	f.hosts[1].got = nil
	counts := spread(t, f, w, 100)
	lost := counts[0]
	if lost == 0 || len(f.hosts[1].got) != int(100-lost) || f.hosts[0].Stats().Drops.NoRoute != lost {
		t.Errorf("far trunk down: %v went up, %d arrived, %+v", counts, len(f.hosts[1].got), f.hosts[0].Stats().Drops)
	}
	// With both trunks down there is no path, and packets in flight are lost.
	f.trunk(1, 0).SetUp()
	f.hosts[1].got = nil
	f.hosts[0].must(t, f.hosts[0].to(f.hosts[1], sized(100)))
	w.AtFunc(w.Now()+150, func() { f.trunk(0, 0).SetDown(); f.trunk(0, 1).SetDown() })
	mustRun(t, w)
	up0, _ := f.trunk(0, 0).Stats()
	up1, _ := f.trunk(0, 1).Stats()
	if up0.Drops.LinkDown+up1.Drops.LinkDown != 1 || len(f.hosts[1].got) != 0 {
		t.Errorf("a packet in flight: %+v, %+v", up0.Drops, up1.Drops)
	}
	before := f.hosts[0].Stats().DropsOut.NoRoute
	f.hosts[0].must(t, f.hosts[0].to(f.hosts[1], sized(100)))
	mustRun(t, w)
	if got := f.hosts[0].Stats().DropsOut.NoRoute - before; got != 1 {
		t.Errorf("without a path: %d packets without a route", got)
	}
}

func TestTrunkAppliesMTUQueueAndECN(t *testing.T) {
	w := New(Config{Seed: 1})
	f := fatTree(t, w, 2, 1, 2, LinkConfig{MTU: 9000}, func(c *TrunkConfig) {
		c.Link.MTU, c.Link.RateBps = 1500, 8e9
		c.Link.QueueBytes = 5000
		c.Link.ECN = ECNConfig{MinBytes: 2000, MaxBytes: 2000, MaxPPM: impair.PPM}
	})
	a, b := f.hosts[0], f.hosts[2]
	a.must(t, a.to(b, sized(1501)))
	for range 10 {
		d := a.to(b, sized(1000))
		d.TClass = link.ECT0
		a.must(t, d)
	}
	mustRun(t, w)
	up, _ := f.trunk(0, 0).Stats()
	want := Stats{Out: Traffic{11, 11501}, Sent: 5, SentBytes: 5000, Delivered: 5, DeliveredBytes: 5000, Marked: 2, QueueBytesMax: 5000, Drops: Drops{TooBig: 1, QueueFull: 5}}
	if up != want {
		t.Errorf("%+v\nwant %+v", up, want)
	}
	marked := 0
	for _, x := range b.got {
		if x.d.ECNBits() == link.CE {
			marked++
		}
	}
	if len(b.got) != 5 || marked != 2 {
		t.Errorf("%d arrived, %d marked", len(b.got), marked)
	}
}

func TestTrunkImpairment(t *testing.T) {
	w := New(Config{Seed: 1})
	f := fatTree(t, w, 2, 1, 1, LinkConfig{}, func(c *TrunkConfig) {
		if c.A.Name() == "leaf0" {
			c.AB.Specs = []impair.Spec{{LossPPM: 500_000}}
			c.BA.Events = []impair.Event{{Match: impair.Match{Seq: new(uint32(3))}, Action: impair.Action{Kind: impair.Drop}}}
		}
	})
	a, b := f.hosts[0], f.hosts[1]
	for i := range 100 {
		a.must(t, a.to(b, numbered(i)))
	}
	for i := range 10 {
		b.must(t, b.to(a, toyPacket(1, uint32(i))))
	}
	mustRun(t, w)
	ab, ba := f.trunk(0, 0).Impairments()
	lost := ab.Counters().Lost
	if lost < 30 || lost > 70 || len(b.got) != int(100-lost) {
		t.Errorf("%d of 100 lost, %d arrived", lost, len(b.got))
	}
	if len(a.got) != 9 || !slices.Equal(ba.Fired(), []uint64{1}) {
		t.Errorf("%d of 10 returned, the event fired %v", len(a.got), ba.Fired())
	}
	// The loss ends, the counters stay.
	must.Do(t, f.trunk(0, 0).SetImpair(nil, nil))
	b.got = nil
	a.must(t, a.to(b, numbered(0)))
	mustRun(t, w)
	if len(b.got) != 1 || ab.Counters().Lost != lost {
		t.Errorf("after SetImpair: %d arrived, %d lost", len(b.got), ab.Counters().Lost)
	}
}

// A multicast reaches the members behind a trunk while it is up.
func TestMulticastCrossesTrunks(t *testing.T) {
	w := New(Config{Seed: 1})
	f := fatTree(t, w, 2, 1, 2, LinkConfig{})
	group := netip.MustParseAddr("239.1.2.3")
	for _, h := range f.hosts[1:] {
		must.Do(t, h.Join(group))
	}
	trunk := f.trunkNames["leaf1-spine0"]
	w.AtFunc(100, trunk.SetDown)
	w.AtFunc(200, trunk.SetUp)
	for i, at := range []mono.Time{50, 150, 250} {
		w.AtFunc(at, func() {
			d := f.hosts[0].to(f.hosts[0], numbered(i))
			d.Dst = netip.AddrPortFrom(group, 4791)
			f.hosts[0].must(t, d)
		})
	}
	mustRun(t, w)
	for i, want := range [][]int{{}, {0, 1, 2}, {0, 2}, {0, 2}} {
		if got := f.hosts[i].numbers(); !slices.Equal(got, want) {
			t.Errorf("host %d got %v, want %v", i, got, want)
		}
	}
}

func TestRoutersDropAtHopLimit(t *testing.T) {
	w := New(Config{Seed: 1})
	f := fatTree(t, w, 2, 1, 1, LinkConfig{})
	for _, hops := range []uint8{1, 2, 3, 4} {
		d := f.hosts[0].to(f.hosts[1], numbered(int(hops)))
		d.HopLimit = hops
		f.hosts[0].must(t, d)
	}
	mustRun(t, w)
	if got := f.hosts[1].numbers(); !slices.Equal(got, []int{4}) || f.hosts[0].Stats().DropsOut.Expired != 3 {
		t.Errorf("arrived with hop limits %v, %+v", got, f.hosts[0].Stats().DropsOut)
	}
}

func TestStreamCrossesTrunks(t *testing.T) {
	w := New(Config{Seed: 1})
	f := fatTree(t, w, 2, 2, 1, LinkConfig{RateBps: 8e9, Latency: 500}, func(c *TrunkConfig) { c.Link.MTU = 1000 })
	a, b := f.hosts[0], f.hosts[1]
	l := must.Get(f.ListenStream(b.addr))(t)
	var server *end
	l.OnAccept(HandlerFunc(func(mono.Time, uint64) {
		s, _ := l.Accept()
		server = newEnd(w, s)
	}), 0)
	s := must.Get(f.DialStream(netip.AddrPortFrom(a.addr.Addr(), 0), b.addr))(t)
	if s.MSS() != 1000-20-tcpHeaderLen {
		t.Errorf("MSS %d: the trunk's MTU is 1000", s.MSS())
	}
	client := newEnd(w, s)
	client.out, client.fin = text(200_000), true
	// While both of the client's trunks are down, the stream waits.
	for i := range 2 {
		w.AtFunc(50_000, f.trunk(0, i).SetDown)
		w.AtFunc(300_000, f.trunk(0, i).SetUp)
	}
	mustRun(t, w)
	if server == nil || string(server.got) != string(text(200_000)) || server.err != io.EOF {
		t.Fatalf("the stream did not arrive whole: %d bytes, %v, written %v", len(server.got), server.err, client.werr)
	}
	if took := time.Duration(w.Now()); took < f.cfg.Stream.RetryDelay {
		t.Errorf("it took %v: did the trunks ever go down?", took)
	}
}

func TestSwitchConfigErrors(t *testing.T) {
	w := New(Config{})
	n, other := newNet(t, w, NetConfig{}), newNet(t, w, NetConfig{})
	s, _ := n.AddSwitch(SwitchConfig{})
	s2, _ := n.AddSwitch(SwitchConfig{})
	foreign, _ := other.AddSwitch(SwitchConfig{})
	must.Get(n.AddTrunk(TrunkConfig{A: s, B: s2}))(t)
	addrs := []netip.Addr{addrOf(0)}
	for want, f := range map[string]func() error{
		"set PortConfig.Switch": func() error { _, err := n.Attach(PortConfig{Addrs: addrs}); return err },
		"switch switch0 is on net net1": func() error {
			_, err := n.Attach(PortConfig{Addrs: addrs, Switch: foreign})
			return err
		},
		"switch switch0: the name is taken":              func() error { _, err := n.AddSwitch(SwitchConfig{Name: "switch0"}); return err },
		"it must join two different switches of the net": func() error { _, err := n.AddTrunk(TrunkConfig{A: s, B: foreign}); return err },
		"trunk switch0-switch1: the name is taken": func() error {
			_, err := n.AddTrunk(TrunkConfig{A: s, B: s2})
			return err
		},
		"MTU 7": func() error {
			_, err := n.AddTrunk(TrunkConfig{Name: "x", A: s, B: s2, Link: LinkConfig{MTU: 7}})
			return err
		},
		"trunks cannot reorder": func() error {
			_, err := n.AddTrunk(TrunkConfig{Name: "y", A: s, B: s2, BA: impair.Config{Events: []impair.Event{
				{Action: impair.Action{Kind: impair.Reorder, Delay: 1}},
			}}})
			return err
		},
		"the net is a cable": func() error {
			_, err := newNet(t, w, NetConfig{Cable: true}).AddSwitch(SwitchConfig{})
			return err
		},
		"there are ports already": func() error {
			plain := newNet(t, w, NetConfig{})
			attach(t, plain, PortConfig{})
			_, err := plain.AddSwitch(SwitchConfig{})
			return err
		},
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
