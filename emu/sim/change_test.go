package sim

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

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
		t.Errorf("%d lost on the uplink, %d on the downlink, want 10 and 10", up.Counters().Lost, down.Counters().Lost)
	}
	if slices.Contains(up.Fired(), 0) {
		t.Error("SetImpair removed the event")
	}
	if err := a.SetImpair([]impair.Spec{{LossPPM: 2 * impair.PPM}}, nil); err == nil {
		t.Error("an invalid Spec was accepted")
	}
	if err := b.SetImpair([]impair.Spec{{LossPPM: 2 * impair.PPM}}, nil); err == nil {
		t.Error("an invalid Spec was accepted on a port without impairments")
	}
}

func TestFrozenPortNeitherSendsNorReceives(t *testing.T) {
	w := New(Config{})
	a, b := pair(t, w, LinkConfig{Latency: 10})
	writable := 0
	b.OnWritable(HandlerFunc(func(mono.Time, uint64) { writable++ }), 0)
	b.Freeze()
	a.must(t, a.to(b, numbered(1)), a.to(b, numbered(2)))
	w.AtFunc(50, func() {
		if n, err := b.Send(0, []link.Datagram{b.to(a, numbered(3))}); n != 0 || err != nil {
			t.Errorf("a frozen port sent %d packets, %v", n, err)
		}
		var ds [4]link.Datagram
		if n, _ := b.Recv(0, ds[:]); n != 0 {
			t.Errorf("a frozen port received %d packets", n)
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
		t.Errorf("%d arrived, writable %d times: Thaw of a port that is not frozen has no effect", len(a.got), writable)
	}
}

// Packets to a removed address are dropped until a port gets it again.
func TestRemoveAddrAndAddAddr(t *testing.T) {
	w := New(Config{})
	a, b := pair(t, w, LinkConfig{})
	own, was := b.addr.Addr(), b.Addrs()
	changes := 0
	b.OnAddrChange(handlerFunc(func() { changes++ }), 0)
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
	if got := b.numbers(); !slices.Equal(got, []int{0, 2}) || a.Stats().Drops.NoRoute != 1 || changes != 2 {
		t.Errorf("arrived %v, %+v, %d address changes", got, a.Stats().Drops, changes)
	}
	if !slices.Equal(was, []netip.Addr{own}) {
		t.Errorf("the slice that Addrs returned before changed to %v", was)
	}
}

type handlerFunc func()

func (f handlerFunc) HandleEvent(mono.Time, uint64) { f() }

// impaired returns two hosts on a switch, the first with an impaired uplink and
// the second with an impaired downlink.
func impaired(t *testing.T, seed uint64, up, down impair.Config) (w *World, a, b *host) {
	t.Helper()
	w = New(Config{Seed: seed})
	n := newNet(t, w, NetConfig{Dissector: toy{}})
	a = attach(t, n, PortConfig{Up: up, Link: LinkConfig{Latency: 100}})
	b = attach(t, n, PortConfig{Down: down, Link: LinkConfig{Latency: 100}})
	return w, a, b
}

func event(flow byte, seq uint32, time int, a impair.Action) impair.Config {
	return impair.Config{Events: []impair.Event{{
		Match: impair.Match{Flow: new(impair.Flow(flow)), Seq: &seq}, Occurrence: time, Action: a,
	}}}
}

// play sends packets of flow 5 with the given sequence numbers, a microsecond
// apart, and returns those that arrive, with their times in microseconds.
func play(t *testing.T, w *World, a, b *host, seqs ...uint32) (got []uint32, at []mono.Time) {
	t.Helper()
	for i, s := range seqs {
		w.AtFunc(mono.Time(i*1000), func() { a.send(t, b, toyPacket(5, s)) })
	}
	mustRun(t, w)
	for _, x := range b.got {
		got = append(got, binary.BigEndian.Uint32(x.d.Payload[1:]))
		at = append(at, (x.at-200)/1000)
	}
	return got, at
}

func TestExactEventsDropDuplicateAndDelay(t *testing.T) {
	for name, tc := range map[string]struct {
		cfg  impair.Config
		want []uint32
		at   []mono.Time
	}{
		"drop the second PSN 7":        {event(5, 7, 2, impair.Action{Kind: impair.Drop}), []uint32{7, 8, 9, 7}, []mono.Time{0, 1, 3, 4}},
		"another flow is untouched":    {event(6, 7, 2, impair.Action{Kind: impair.Drop}), []uint32{7, 8, 7, 9, 7}, []mono.Time{0, 1, 2, 3, 4}},
		"duplicate PSN 8 later":        {event(5, 8, 1, impair.Action{Kind: impair.Duplicate, Delay: 1500}), []uint32{7, 8, 7, 8, 9, 7}, []mono.Time{0, 1, 2, 2, 3, 4}},
		"delay PSN 8":                  {event(5, 8, 1, impair.Action{Kind: impair.Delay, Delay: 5000}), []uint32{7, 7, 9, 7, 8}, []mono.Time{0, 2, 3, 4, 6}},
		"reorder PSN 8":                {event(5, 8, 1, impair.Action{Kind: impair.Reorder, Delay: time.Second}), []uint32{7, 7, 8, 9, 7}, []mono.Time{0, 2, 2, 3, 4}},
		"reorder without later packet": {event(5, 7, 3, impair.Action{Kind: impair.Reorder, Delay: 10_000}), []uint32{7, 8, 7, 9, 7}, []mono.Time{0, 1, 2, 3, 14}},
	} {
		for _, where := range []string{"up", "down"} {
			up, down := tc.cfg, impair.Config{}
			if where == "down" {
				up, down = down, up
			}
			w, a, b := impaired(t, 1, up, down)
			got, at := play(t, w, a, b, 7, 8, 7, 9, 7)
			if !slices.Equal(got, tc.want) || !slices.Equal(at, tc.at) {
				t.Errorf("%s, %s: got %v at %v, want %v at %v", name, where, got, at, tc.want, tc.at)
			}
			if inUse := a.net.packets.made - len(a.net.packets.free); inUse != 0 {
				t.Errorf("%s, %s: %d packets leaked", name, where, inUse)
			}
		}
	}
}

func TestExactEventsModifyPacket(t *testing.T) {
	for name, tc := range map[string]struct {
		action impair.Action
		check  func(link.Datagram) bool
	}{
		"corrupt bit": {impair.Action{Kind: impair.CorruptBit, Bit: -1}, func(d link.Datagram) bool { return d.Payload[5] == 1 }},
		"set ECN":     {impair.Action{Kind: impair.SetECN, ECN: link.CE}, func(d link.Datagram) bool { return d.ECNBits() == link.CE }},
		"set field":   {impair.Action{Kind: impair.SetField, Field: "field", Value: 9}, func(d link.Datagram) bool { return d.Payload[5] == 9 }},
		"truncate":    {impair.Action{Kind: impair.Truncate, Bytes: 5}, func(d link.Datagram) bool { return len(d.Payload) == 5 }},
	} {
		w, a, b := impaired(t, 1, event(5, 7, 1, tc.action), impair.Config{})
		a.send(t, b, toyPacket(5, 7), toyPacket(5, 7))
		mustRun(t, w)
		if len(b.got) != 2 || !tc.check(b.got[0].d) || tc.check(b.got[1].d) {
			t.Errorf("%s: got %+v, want the first changed, the second not", name, b.got)
		}
		up, down := a.Impairments()
		if up.Counters().EventsFired != 1 || slices.Contains(up.Fired(), 0) || up.Err() != nil || down != nil {
			t.Errorf("%s: %+v, %v", name, up.Counters(), up.Err())
		}
	}
}

func TestCableImpairsBothDirections(t *testing.T) {
	w := New(Config{Seed: 1})
	n := newNet(t, w, NetConfig{Cable: true})
	late := impair.Config{Specs: []impair.Spec{{Delay: 10, DuplicatePPM: impair.PPM}}}
	a := attach(t, n, PortConfig{Up: late, Link: LinkConfig{Latency: 100}})
	b := attach(t, n, PortConfig{Down: late, Link: LinkConfig{Latency: 100}})
	a.send(t, b, numbered(1))
	mustRun(t, w)
	if want := []mono.Time{120, 120, 120, 120}; !slices.Equal(b.times(), want) {
		t.Errorf("arrivals %v, want %v", b.times(), want)
	}
	b.send(t, a, numbered(2)) // the other direction is not impaired
	mustRun(t, w)
	if len(a.got) != 1 {
		t.Errorf("%d arrived in the other direction", len(a.got))
	}
}

func TestRandomLossDependsOnSeedAndPortOnly(t *testing.T) {
	lossy := impair.Config{Specs: []impair.Spec{{LossPPM: 500_000}}}
	run := func(seed uint64, extra bool) []int {
		w := New(Config{Seed: seed})
		n := newNet(t, w, NetConfig{})
		a := attach(t, n, PortConfig{Up: lossy})
		b := attach(t, n, PortConfig{})
		if extra { // another lossy port with interleaved traffic
			c := attach(t, n, PortConfig{Up: lossy, Down: lossy})
			for i := range 200 {
				w.AtFunc(mono.Time(i*10+5), func() { c.send(t, b, numbered(1000+i)) })
			}
		}
		for i := range 200 {
			w.AtFunc(mono.Time(i*10), func() { a.send(t, b, numbered(i)) })
		}
		mustRun(t, w)
		return slices.DeleteFunc(b.numbers(), func(i int) bool { return i >= 1000 })
	}
	alone := run(1, false)
	if !slices.Equal(alone, run(1, true)) {
		t.Error("another port changed the losses of this one")
	}
	if slices.Equal(alone, run(2, false)) || len(alone) < 60 || len(alone) > 140 {
		t.Errorf("%d of 200 arrived; or seed 2 loses the same", len(alone))
	}
}
