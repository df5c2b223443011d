package ethernet

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softroce"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/netns/uswitch"
)

// roce returns a RoCEv2 SEND of queue pair 0x11 or 0x12 with its ICRC.
func roce(v6 bool, psn uint32, ipID uint16) link.Datagram {
	b := binary.BigEndian.AppendUint32([]byte{0x04, 0x40, 0xff, 0xff}, 0x11+psn%2)
	b = binary.BigEndian.AppendUint32(b, psn)
	b = append(b, bytes.Repeat([]byte{byte(psn)}, 40+wire.ICRCLen)...)
	d := datagram(v6, b)
	if !v6 {
		d.IPID = uint32(ipID)
	}
	wire.NewICRC(d.Src, d.Dst).Seal(ipID, b)
	return d
}

// arrival is a received datagram.
type arrival struct {
	at mono.Time
	d  link.Datagram
}

func order(all []arrival) []arrival {
	slices.SortStableFunc(all, func(a, b arrival) int {
		return cmp.Or(cmp.Compare(a.at, b.at), bytes.Compare(a.d.Payload, b.d.Payload), cmp.Compare(a.d.TClass, b.d.TClass))
	})
	return all
}

const gap = 1000 // nanoseconds from one packet to the next

// inSimulation sends datagrams through a simulated port.
func inSimulation(t *testing.T, seed uint64, cfg impair.Config, ds []link.Datagram) (all []arrival, c impair.Counters) {
	t.Helper()
	w := sim.New(sim.Config{Seed: seed})
	n := must.Get(sim.NewNet(w, sim.NetConfig{Name: "fabric", Cable: true, Dissector: softroce.Dissector{}}))(t)
	link0 := sim.LinkConfig{MTU: 9000}
	a := must.Get(n.Attach(sim.PortConfig{Name: "host0", Addrs: []netip.Addr{v4A, v6A}, Up: cfg, Link: link0}))(t)
	must.Get(n.Attach(sim.PortConfig{Name: "host1", Addrs: []netip.Addr{v4B, v6B}, Link: link0}))(t)
	n.SetTap(func(now mono.Time, p *sim.Port, dir sim.Direction, d *link.Datagram) {
		if dir == sim.In {
			got := *d
			got.Payload = bytes.Clone(d.Payload)
			all = append(all, arrival{now, got})
		}
	})
	for i := range ds {
		w.AtFunc(mono.Time(i*gap), func() {
			must.Get(a.Send(w.Now(), ds[i:i+1]))(t)
		})
	}
	must.Do(t, w.Run())
	up, _ := a.Impairments()
	return order(all), up.Counters()
}

// inFrames sends the same datagrams as frames through an Impairer.
func inFrames(t *testing.T, seed uint64, cfg impair.Config, ds []link.Datagram, start time.Duration) (all []arrival, c impair.Counters) {
	t.Helper()
	p := must.Get(NewImpairer(cfg, Options{Dissector: softroce.Dissector{}, Source: impair.RandSources(seed, "fabric/host0/up"), Start: start}))(t)
	now := start
	emit := func(after time.Duration, f uswitch.Frame) {
		must.Do(t, verify(f))
		d := read(t, bytes.Clone(f.Bytes))
		all = append(all, arrival{mono.Time(now - start + max(after, 0)), d})
	}
	runTimers := func(until time.Duration) {
		for p.NextTimer() <= until {
			now = p.NextTimer()
			p.HandleTimer(now, emit)
		}
	}
	for i := range ds {
		// A packet sent at the time of a timer comes first, as in the simulation.
		at := start + time.Duration(i*gap)
		runTimers(at - 1)
		now = at
		f := uswitch.Frame{Bytes: frameOf(t, ds[i])}
		if i%2 == 0 {
			f = uswitch.Frame{Bytes: partial(t, f.Bytes), ChecksumPartial: true}
		}
		p.Apply(now, f, emit)
	}
	for p.NextTimer() != uswitch.Never {
		runTimers(p.NextTimer())
	}
	return order(all), p.Pipe.Counters()
}

// TestDecisionsMatchSimulation checks that an Impairer and a simulated port
// treat the same packets alike.
func TestDecisionsMatchSimulation(t *testing.T) {
	random := impair.Spec{
		LossPPM: 50_000, Burst: impair.GilbertElliott{ToBadPPM: 20_000, ToGoodPPM: 200_000, LossBadPPM: 800_000},
		DuplicatePPM: 50_000, DuplicateDelay: 333, ReorderPPM: 50_000, ReorderDelay: 2500, Delay: 700, Jitter: 400,
		CorruptPPM: 50_000, TruncatePPM: 50_000, MarkPPM: 100_000, RateBps: 1e9, QueueBytes: 3000,
	}
	late := impair.Spec{From: 100 * gap, Until: 200 * gap, LossPPM: 300_000}
	flow := impair.Flow(0x11)
	events := []impair.Event{
		{Match: impair.Match{Flow: &flow, Seq: new(uint32(6))}, Occurrence: 1, Action: impair.Action{Kind: impair.Drop}},
		{Match: impair.Match{Seq: new(uint32(20))}, Occurrence: 2, Action: impair.Action{Kind: impair.SetField, Field: "bth.psn", Value: 99}},
		{Match: impair.Match{Flow: &flow, Seq: new(uint32(30))}, Occurrence: 1, Action: impair.Action{Kind: impair.Reorder, Count: 3, Delay: time.Second}},
		{Match: impair.Match{Seq: new(uint32(41))}, Occurrence: 1, Action: impair.Action{Kind: impair.Reorder, Count: 900, Delay: 5500}},
		{Match: impair.Match{Seq: new(uint32(50))}, Action: impair.Action{Kind: impair.CorruptBit, Bit: -1}},
		{Match: impair.Match{Src: v6A, Nth: new(uint64(33))}, Action: impair.Action{Kind: impair.Duplicate, Count: 2, Delay: 77}},
		{Match: impair.Match{Seq: new(uint32(60))}, Action: impair.Action{Kind: impair.Truncate, Bytes: 20}},
		{Match: impair.Match{Seq: new(uint32(61))}, Action: impair.Action{Kind: impair.SetECN, ECN: link.CE}},
		{Match: impair.Match{Seq: new(uint32(62))}, Action: impair.Action{Kind: impair.Delay, Delay: 12345}},
	}
	for name, cfg := range map[string]impair.Config{
		"chance": {Specs: []impair.Spec{random, late}},
		"events": {Events: events},
		"both":   {Specs: []impair.Spec{random}, Events: events},
	} {
		for _, v6 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, IPv6 %v", name, v6), func(t *testing.T) {
				var ds []link.Datagram
				for i := range 400 {
					ds = append(ds, roce(v6, uint32(i%150), uint16(i%15)))
				}
				want, wantCount := inSimulation(t, 7, cfg, ds)
				got, gotCount := inFrames(t, 7, cfg, ds, time.Hour)
				if gotCount != wantCount {
					t.Errorf("counted %+v, in simulation %+v", gotCount, wantCount)
				}
				if len(got) != len(want) {
					t.Fatalf("%d packets arrive, in simulation %d", len(got), len(want))
				}
				for i := range want {
					g, w := &got[i], &want[i]
					if g.at != w.at || !bytes.Equal(g.d.Payload, w.d.Payload) || g.d.TClass != w.d.TClass ||
						g.d.IPID != w.d.IPID || g.d.Src != w.d.Src || g.d.Dst != w.d.Dst || g.d.FlowLabel != w.d.FlowLabel || g.d.HopLimit != w.d.HopLimit {
						t.Fatalf("packet %d: %v %+v, in simulation %v %+v", i, g.at, g.d, w.at, w.d)
					}
				}
				other, _ := inFrames(t, 8, cfg, ds, 0)
				if name != "events" && len(other) == len(got) && slices.EqualFunc(got, other, func(a, b arrival) bool { return a.at == b.at && bytes.Equal(a.d.Payload, b.d.Payload) }) {
					t.Error("seeds 7 and 8 give the same result")
				}
			})
		}
	}
}
