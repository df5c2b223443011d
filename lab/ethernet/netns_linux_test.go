package ethernet

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/netns/uswitch"
)

// seen is a received datagram in comparable form.
func seen(payload []byte, tclass uint8) string { return fmt.Sprintf("%d %x", tclass&link.ECN, payload) }

// TestAllImpairmentsMatchSimulation sends GSO packets between hosts and compares the received
// datagrams with those of a simulation with the same seed.
func TestAllImpairmentsMatchSimulation(t *testing.T) {
	const seed, count, batch = 42, 300, 15
	flow := impair.Flow(0x12)
	for name, cfg := range map[string]impair.Config{
		"loss":      {Specs: []impair.Spec{{LossPPM: 100_000}}},
		"burst":     {Specs: []impair.Spec{{Burst: impair.GilbertElliott{ToBadPPM: 50_000, ToGoodPPM: 200_000, LossBadPPM: 900_000}}}},
		"duplicate": {Specs: []impair.Spec{{DuplicatePPM: 100_000, DuplicateDelay: 50 * time.Microsecond}}},
		"reorder":   {Specs: []impair.Spec{{ReorderPPM: 100_000, ReorderDelay: 500 * time.Microsecond}}},
		"delay":     {Specs: []impair.Spec{{Delay: 100 * time.Microsecond, Jitter: 200 * time.Microsecond}}},
		"corrupt":   {Specs: []impair.Spec{{CorruptPPM: 100_000}}},
		"truncate":  {Specs: []impair.Spec{{TruncatePPM: 100_000}}},
		"mark":      {Specs: []impair.Spec{{MarkPPM: 100_000}}},
		"rate":      {Specs: []impair.Spec{{RateBps: 100e6, LossPPM: 10_000}}},
		"all": {Specs: []impair.Spec{{
			LossPPM: 50_000, DuplicatePPM: 50_000, ReorderPPM: 50_000, ReorderDelay: 100 * time.Microsecond,
			CorruptPPM: 50_000, TruncatePPM: 50_000, MarkPPM: 50_000, Jitter: 10 * time.Microsecond,
		}}},
		"events": {Events: []impair.Event{
			{Match: impair.Match{Flow: &flow, Seq: new(uint32(7))}, Occurrence: 2, Action: impair.Action{Kind: impair.Drop}},
			{Match: impair.Match{Seq: new(uint32(8))}, Occurrence: 1, Action: impair.Action{Kind: impair.CorruptBit, Bit: 100}},
			{Match: impair.Match{Seq: new(uint32(9))}, Occurrence: 1, Action: impair.Action{Kind: impair.Reorder, Count: 5, Delay: time.Second}},
			{Match: impair.Match{Seq: new(uint32(11))}, Action: impair.Action{Kind: impair.Duplicate, Count: 2}},
			{Match: impair.Match{Seq: new(uint32(12))}, Action: impair.Action{Kind: impair.Truncate, Bytes: 30}},
			{Match: impair.Match{Nth: new(uint64(40))}, Action: impair.Action{Kind: impair.SetECN, ECN: link.CE}},
			{Match: impair.Match{Seq: new(uint32(20))}, Action: impair.Action{Kind: impair.Delay, Delay: time.Millisecond}},
		}},
	} {
		for _, v6 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, IPv6 %v", name, v6), func(t *testing.T) {
				t.Parallel()
				path := must.Get(NewImpairer(cfg, Options{Dissector: softroce.Dissector{}, Source: impair.RandSources(seed, "fabric/host0/up")}))(t)
				s, ha, hb := wired(t, 1500, func(c *uswitch.Config) { c.Ports[0].In = path })
				a, b := openUDP(t, ha, v6, 50000), openUDP(t, hb, v6, 4791)
				var ds []link.Datagram
				for i := range count {
					d := roce(v6, uint32(i%50), 0)
					d.TClass = link.ECT0
					ds = append(ds, d)
				}
				start := time.Now()
				for i := 0; i < count; i += batch {
					var super []byte
					for _, d := range ds[i : i+batch] {
						super = append(super, d.Payload...)
					}
					a.send(t, b.addr, super, len(ds[i].Payload))
				}
				expected, counters := inSimulation(t, seed, cfg, ds)
				var want, got []string
				for _, w := range expected {
					want = append(want, seen(w.d.Payload, w.d.TClass))
				}
				for len(got) < len(want) {
					p, tclass := b.receive(t)
					if p == nil {
						break
					}
					got = append(got, seen(p, tclass))
				}
				took := time.Since(start)
				slices.Sort(want)
				slices.Sort(got)
				if !slices.Equal(got, want) {
					t.Errorf("%d datagrams arrive, in simulation %d, or their contents differ", len(got), len(want))
				}
				s.WhileQuiesced(func() {
					if c := path.Pipe.Counters(); c != counters {
						t.Errorf("counted %+v, in simulation %+v", c, counters)
					}
					if fired := path.Pipe.Fired(); slices.Contains(fired, 0) || path.Pipe.Err() != nil {
						t.Errorf("events fired %v times: %v", fired, path.Pipe.Err())
					}
				})
				if at := time.Duration(len(want)) * 8 * time.Microsecond; name == "rate" && took < at { // 100 bytes or so each
					t.Errorf("took %v at 100 Mb/s, want %v or more", took, at)
				}
			})
		}
	}
}

// A rate limit holds in real time, for TCP and UDP.
func TestRateLimitsTCPAndUDP(t *testing.T) {
	const rate = 200e6
	path := specPath(t, impair.Spec{RateBps: rate, QueueBytes: 1 << 20})
	s, ha, hb := wired(t, 1500, nil)
	a, b := openUDP(t, ha, true, 50000), openUDP(t, hb, true, 4791)
	const size, n = 1000, 400
	const least = time.Duration(n * (size + 48) * 8 * 1e9 / rate)
	transfer := func(path uswitch.FrameHandler) time.Duration {
		t.Helper()
		must.Do(t, s.SetHandler(0, uswitch.In, path))
		start := time.Now()
		for range n / 10 {
			a.send(t, b.addr, make([]byte, 10*size), size)
		}
		for got := range n {
			if p, _ := b.receive(t); p == nil {
				t.Fatalf("%d of %d datagrams", got, n)
			}
		}
		return time.Since(start)
	}
	for range 20 { // retried: the machine may be busy
		free, took := transfer(nil), transfer(path)
		t.Logf("%d datagrams in %v, %v at the rate, %v without one", n, took, least, free)
		if took < least {
			t.Fatalf("%d datagrams in %v, want %v", n, took, least)
		}
		if took <= 5*least+100*time.Millisecond+4*free {
			return
		}
	}
	t.Errorf("%d datagrams always take far longer than %v", n, least)
}

func TestNeighbourDiscoveryPassesTotalLoss(t *testing.T) {
	lose := func() uswitch.FrameHandler { return specPath(t, impair.Spec{LossPPM: impair.PPM}) }
	s, ha, hb := wiredCold(t, 1500, func(c *uswitch.Config) { c.Ports[0].In, c.Ports[1].In = lose(), lose() })
	for _, v6 := range []bool{false, true} {
		a, b := openUDP(t, ha, v6, 50000), openUDP(t, hb, v6, 4791)
		a.send(t, b.addr, []byte("lost"), 100)
		if p := b.nothing(t); p != nil {
			t.Fatalf("%q arrived", p)
		}
		// The neighbour is resolved by now.
		must.Do(t, s.SetHandler(0, uswitch.In, nil))
		a.send(t, b.addr, []byte("found"), 100)
		if p, _ := b.receive(t); string(p) != "found" {
			t.Errorf("IPv6 %v: %q arrived", v6, p)
		}
		must.Do(t, s.SetHandler(0, uswitch.In, lose()))
	}
}

func TestFilterPartitionsAndHeals(t *testing.T) {
	blocked := func(src, dst netip.Addr) bool { return src == v6A || dst == v6A }
	s, ha, hb := wired(t, 1500, nil)
	a, b := openUDP(t, ha, true, 50000), openUDP(t, hb, true, 4791)
	a4, b4 := openUDP(t, ha, false, 50000), openUDP(t, hb, false, 4791)
	reaches := func(from, to *socket) bool {
		from.send(t, to.addr, []byte("x"), 100)
		p, _ := to.receive(t)
		return p != nil
	}
	isLost := func(from, to *socket) bool {
		from.send(t, to.addr, []byte("x"), 100)
		return to.nothing(t) == nil
	}
	if !reaches(a, b) || !reaches(b, a) {
		t.Fatal("no packets arrive before the partition")
	}
	f := &Filter{Next: passThrough{}, Blocked: blocked}
	must.Do(t, s.SetHandler(0, uswitch.In, f))
	if !isLost(a, b) || !reaches(a4, b4) {
		t.Error("the filter passes a blocked address, or blocks others")
	}
	must.Do(t, s.SetHandler(0, uswitch.In, nil))
	if f.Dropped == 0 || !reaches(a, b) {
		t.Errorf("not healed; %d blocked", f.Dropped)
	}
}

func TestCaptureOfRealFrames(t *testing.T) {
	var file bytes.Buffer
	c := NewCapture(&file, CaptureOptions{Epoch: time.Now()})
	path := newPath(t, impair.Config{Events: []impair.Event{{Match: impair.Match{Seq: new(uint32(3))}, Action: impair.Action{Kind: impair.Drop}}}}, softroce.Dissector{})
	s, ha, hb := wired(t, 1500, func(cfg *uswitch.Config) {
		cfg.Ports[0].In, cfg.Ports[1].Out = c.Tap("host0 out", path), c.Tap("host1 in", passThrough{})
	})
	a, b := openUDP(t, ha, false, 50000), openUDP(t, hb, false, 4791)
	var super []byte
	for i := range 10 {
		super = append(super, roce(false, uint32(i), 0).Payload...)
	}
	a.send(t, b.addr, super, len(super)/10)
	for range 9 {
		if p, _ := b.receive(t); p == nil {
			t.Fatal("lost")
		}
	}
	must.Do(t, s.SetHandler(0, uswitch.In, nil))
	must.Do(t, s.SetHandler(1, uswitch.Out, nil))
	must.Do(t, c.Close())
	count := map[string]int{}
	for _, r := range readCapture(t, file.Bytes()) {
		var h headers
		if !h.parse(r.data) || h.proto != link.ProtocolUDP {
			continue
		}
		must.Do(t, verify(uswitch.Frame{Bytes: r.data}))
		d := read(t, r.data)
		_, psn, _ := softroce.Dissector{}.Dissect(d.Payload)
		if d.IPID != psn {
			t.Errorf("PSN %d has identification %d: segments are numbered from 0", psn, d.IPID)
		}
		if lost := strings.Contains(r.comment, "lost"); lost != (psn == 3) {
			t.Errorf("PSN %d on %s: %q", psn, r.intf, r.comment)
		}
		count[r.intf]++
	}
	if count["host0 out"] != 10 || count["host1 in"] != 9 {
		t.Errorf("frames by interface: %v", count)
	}
}
