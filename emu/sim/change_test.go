package sim

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
)

// SetImpair applies to later packets; exact events and counters are kept.
func TestSetImpairReplacesSpecs(t *testing.T) {
	w := New(Config{Seed: 1})
	n := newNet(t, w, NetConfig{Dissector: toy{}})
	a := attach(t, n, PortConfig{Up: impair.Config{
		Specs:  []impair.Spec{{LossPPM: impair.PPM}},
		Events: []impair.Event{{Match: impair.Match{Nth: new(uint64(25))}, Action: impair.Action{Kind: impair.Drop}}},
	}})
	b := attach(t, n, PortConfig{})
	for i := range 40 {
		w.AtFunc(mono.Time(i), func() { a.must(t, a.to(b, numbered(i))) })
	}
	set := func(p *host, up, down []impair.Spec) {
		must.Do(t, p.SetImpair(up, down))
	}
	w.AtFunc(10, func() { set(a, nil, nil) }) // before the packet of that time has crossed its cable
	w.AtFunc(30, func() { set(b, nil, []impair.Spec{{LossPPM: impair.PPM}}) })
	mustRun(t, w)
	got := b.numbers()
	up, _ := a.Impairments()
	_, down := b.Impairments()
	if len(got) == 0 || slices.Contains(got, 24) || len(got)+int(up.Counters().Lost+up.Counters().EventsDropped+down.Counters().Lost) != 40 {
		t.Errorf("arrived %v, %+v, %+v", got, up.Counters(), down.Counters())
	}
	if up.Counters().Lost != 10 || down.Counters().Lost != 10 {
		t.Errorf("%d lost on the way up, %d on the way down, want 10 and 10", up.Counters().Lost, down.Counters().Lost)
	}
	if len(up.Unfired()) != 0 {
		t.Error("the event was forgotten")
	}
	if err := a.SetImpair([]impair.Spec{{LossPPM: 2 * impair.PPM}}, nil); err == nil {
		t.Error("nonsense was taken")
	}
	if err := b.SetImpair([]impair.Spec{{LossPPM: 2 * impair.PPM}}, nil); err == nil {
		t.Error("nonsense was taken where nothing was impaired before")
	}
}

func TestSetRateChangesBandwidth(t *testing.T) {
	w := New(Config{})
	a, b := pair(t, w, LinkConfig{RateBps: 8e9})
	a.must(t, a.to(b, sized(1000)))
	mustRun(t, w)
	a.SetRate(16e9)
	a.must(t, a.to(b, sized(1000)))
	mustRun(t, w)
	a.SetRate(0)
	a.must(t, a.to(b, sized(1000)))
	mustRun(t, w)
	if got := b.times(); !slices.Equal(got, []mono.Time{1000, 1500, 1500}) {
		t.Errorf("arrived at %v", got)
	}
}

// A frozen port queues received packets and sends nothing.
func TestFrozenPortNeitherSendsNorReceives(t *testing.T) {
	w := New(Config{})
	a, b := pair(t, w, LinkConfig{Latency: 10})
	writable := 0
	b.OnWritable(HandlerFunc(func(mono.Time, uint64) { writable++ }), 0)
	b.Freeze()
	a.must(t, a.to(b, numbered(1)), a.to(b, numbered(2)))
	w.AtFunc(50, func() {
		if n, err := b.Send(0, []link.Datagram{b.to(a, numbered(3))}); n != 0 || err != nil {
			t.Errorf("a frozen port took %d packets, %v", n, err)
		}
		var ds [4]link.Datagram
		if n, _ := b.Recv(0, ds[:]); n != 0 {
			t.Errorf("a frozen port gave %d packets", n)
		}
	})
	w.AtFunc(100, b.Thaw)
	mustRun(t, w)
	if got := b.times(); !slices.Equal(got, []mono.Time{100, 100}) || writable != 1 {
		t.Errorf("received at %v, writable %d times", got, writable)
	}
	b.Thaw()
	if b.send(t, a, numbered(4)); len(a.got) != 0 {
		t.Error("arrived before it was sent")
	}
	mustRun(t, w)
	if len(a.got) != 1 || writable != 1 {
		t.Errorf("%d arrived, writable %d times: thawing what is not frozen does nothing", len(a.got), writable)
	}
}

// Packets to a removed address are dropped until a port gets it again.
func TestRemoveAddrAndAddAddr(t *testing.T) {
	w := New(Config{})
	a, b := pair(t, w, LinkConfig{})
	own, was := b.addr.Addr(), b.Addrs()
	told := 0
	b.OnAddrChange(handlerFunc(func() { told++ }), 0)
	send := func(i int) {
		a.must(t, a.to(b, numbered(i)))
		mustRun(t, w)
	}
	send(0)
	must.Do(t, b.RemoveAddr(own))
	send(1)
	for what, err := range map[string]error{
		"taken twice": b.RemoveAddr(own), "given to a group": b.AddAddr(netip.MustParseAddr("ff02::1")), "another's": b.AddAddr(a.addr.Addr()),
	} {
		if err == nil {
			t.Error(what)
		}
	}
	must.Do(t, b.AddAddr(own))
	send(2)
	if got := b.numbers(); !slices.Equal(got, []int{0, 2}) || a.Stats().Drops.NoRoute != 1 || told != 2 {
		t.Errorf("arrived %v, %+v, told %d times", got, a.Stats().Drops, told)
	}
	if !slices.Equal(was, []netip.Addr{own}) {
		t.Errorf("what was asked for before has changed to %v", was)
	}
}

type handlerFunc func()

func (f handlerFunc) HandleEvent(mono.Time, uint64) { f() }
