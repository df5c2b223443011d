package impair

import (
	"bytes"
	"encoding/json"
	"math/bits"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
)

func TestZeroSpecIsTransparentAndDoesNotAllocate(t *testing.T) {
	p := specPipe(t, Spec{KeepOrder: true, From: 5, Until: 10})
	if !p.Transparent() {
		t.Error("the zero Spec is not transparent")
	}
	d := datagram(toyPacket(1, 2, 3))
	out := p.Apply(7, d, nil)
	if len(out) != 1 || out[0].Delay != 0 || !reflect.DeepEqual(out[0].Datagram, *d) {
		t.Fatalf("got %+v, want %+v unchanged", out, *d)
	}
	if &out[0].Datagram.Payload[0] != &d.Payload[0] {
		t.Error("the unchanged payload was copied")
	}
	if n := testing.AllocsPerRun(100, func() { out = p.Apply(7, d, out[:0]) }); n != 0 {
		t.Errorf("Apply allocates %v times", n)
	}
}

func TestLossRateMatchesSpec(t *testing.T) {
	p := specPipe(t, Spec{LossPPM: 100_000})
	lost := 0
	for _, out := range feed(p, 20_000) {
		if len(out) == 0 {
			lost++
		}
	}
	share(t, "loss", lost, 20_000, 100_000, 5_000)
	if c := p.Counters(); c.Lost != uint64(lost) || c.Offered != 20_000 || c.Emitted != 20_000-c.Lost {
		t.Errorf("counters %+v, lost %d", c, lost)
	}
}

func TestBurstLossMatchesGilbertElliott(t *testing.T) {
	// Bad a quarter of the time (1/30 in, 1/10 out); bursts of 10 packets.
	p := specPipe(t, Spec{Burst: GilbertElliott{ToBadPPM: 33_333, ToGoodPPM: 100_000, LossBadPPM: PPM}})
	const n = 50_000
	lost, bursts, before := 0, 0, false
	for _, out := range feed(p, n) {
		now := len(out) == 0
		if now {
			lost++
			if !before {
				bursts++
			}
		}
		before = now
	}
	share(t, "loss", lost, n, 250_000, 15_000)
	share(t, "mean burst", lost, bursts, 10*PPM, PPM/2)
	if c := p.Counters(); c.LostInBurst != uint64(lost) || c.Lost != 0 {
		t.Errorf("counters %+v, lost %d", c, lost)
	}
}

func TestGilbertElliottDropsInBothStates(t *testing.T) {
	p := specPipe(t, Spec{Burst: GilbertElliott{ToBadPPM: 100_000, ToGoodPPM: 100_000, LossBadPPM: 800_000, LossGoodPPM: 100_000}})
	lost := 0
	for _, out := range feed(p, 40_000) {
		if len(out) == 0 {
			lost++
		}
	}
	share(t, "loss", lost, 40_000, 450_000, 15_000)
}

func TestDuplicateFollowsFirstCopy(t *testing.T) {
	p := specPipe(t, Spec{DuplicatePPM: 200_000, DuplicateDelay: 3 * time.Microsecond, Delay: time.Microsecond})
	twice := 0
	for i, out := range feed(p, 20_000) {
		if len(out) == 2 {
			twice++
			if out[0].Delay != time.Microsecond || out[1].Delay != 4*time.Microsecond ||
				!bytes.Equal(out[0].Datagram.Payload, out[1].Datagram.Payload) {
				t.Fatalf("packet %d: %+v", i, out)
			}
		} else if len(out) != 1 {
			t.Fatalf("packet %d: %d copies", i, len(out))
		}
	}
	share(t, "duplicates", twice, 20_000, 200_000, 10_000)
}

func TestReorderRateMatchesSpec(t *testing.T) {
	p := specPipe(t, Spec{ReorderPPM: 50_000, ReorderDelay: 10 * time.Microsecond, KeepOrder: true, Delay: time.Microsecond})
	held := 0
	for i, out := range feed(p, 20_000) {
		switch out[0].Delay {
		case time.Microsecond:
		case 11 * time.Microsecond:
			held++
		default:
			t.Fatalf("packet %d: delay %v", i, out[0].Delay)
		}
	}
	share(t, "reordered", held, 20_000, 50_000, 5_000)
	if c := p.Counters(); c.Reordered != uint64(held) {
		t.Errorf("counters %+v, held %d", c, held)
	}
}

func TestJitterIsUniformAndKeepOrderKeepsOrder(t *testing.T) {
	s := Spec{Delay: 10 * time.Microsecond, Jitter: 20 * time.Microsecond}
	low, high, overtakes, last := 0, 0, 0, mono.Time(0)
	for i, out := range feed(specPipe(t, s), 20_000) {
		d := out[0].Delay
		if d < 10*time.Microsecond || d > 30*time.Microsecond {
			t.Fatalf("packet %d: delay %v", i, d)
		}
		if d < 15*time.Microsecond {
			low++
		}
		if d > 25*time.Microsecond {
			high++
		}
		at := mono.Time(i * 1000).Add(d)
		if at < last {
			overtakes++
		}
		last = at
	}
	share(t, "lowest quarter", low, 20_000, 250_000, 15_000)
	share(t, "highest quarter", high, 20_000, 250_000, 15_000)
	if overtakes < 5_000 {
		t.Errorf("only %d packets overtook: jitter of 20 gaps should reorder", overtakes)
	}
	s.KeepOrder, last = true, 0
	for i, out := range feed(specPipe(t, s), 20_000) {
		at := mono.Time(i * 1000).Add(out[0].Delay)
		if at < last || out[0].Delay < 10*time.Microsecond {
			t.Fatalf("packet %d leaves at %v, the one before at %v", i, at, last)
		}
		last = at
	}
}

func TestJitterReachesItsLimits(t *testing.T) {
	for draw, want := range map[uint64]time.Duration{0: 0, 1<<64 - 1: 10} {
		p := must.Get(NewPipe(Config{Specs: []Spec{{Jitter: 10}}}, nil, func(string) Source { return fixed(draw) }))(t)
		if got := p.Apply(0, datagram(nil), nil)[0].Delay; got != want {
			t.Errorf("draw %d: delay %v, want %v", draw, got, want)
		}
	}
}

func TestCorruptionInvertsOneBitOfCopy(t *testing.T) {
	p := specPipe(t, Spec{CorruptPPM: PPM})
	seen := make(map[int]int)
	for i := range 10_000 {
		mine := toyPacket(1, uint32(i), 7)
		out := p.Apply(0, datagram(mine), nil)
		if !toyIntact(mine) {
			t.Fatal("the caller's bytes were changed")
		}
		flipped, where := 0, 0
		for k, b := range out[0].Datagram.Payload {
			if x := b ^ mine[k]; x != 0 {
				flipped += bits.OnesCount8(x)
				where = k*8 + bits.LeadingZeros8(x)
			}
		}
		if flipped != 1 {
			t.Fatalf("%d bits flipped", flipped)
		}
		seen[where]++
	}
	for bit := range 56 {
		share(t, "bit", seen[bit], 10_000, PPM/56, PPM/56/2)
	}
}

func TestTruncationShortensPayload(t *testing.T) {
	p := specPipe(t, Spec{TruncatePPM: PPM})
	seen := make([]int, 8)
	for _, out := range feed(p, 10_000) {
		seen[len(out[0].Datagram.Payload)]++
	}
	if seen[7] != 0 {
		t.Errorf("%d packets kept their length", seen[7])
	}
	for n := range 7 {
		share(t, "length", seen[n], 10_000, PPM/7, PPM/7/4)
	}
	if out := p.Apply(0, datagram(nil), nil); len(out) != 1 || len(out[0].Datagram.Payload) != 0 {
		t.Errorf("an empty packet became %+v", out)
	}
}

func TestMarkMarksOnlyECTPackets(t *testing.T) {
	p := specPipe(t, Spec{MarkPPM: PPM})
	for ecn, want := range map[uint8]uint8{link.NotECT: link.NotECT, link.ECT0: link.CE, link.ECT1: link.CE, link.CE: link.CE} {
		d := datagram(nil)
		d.TClass = 0xa0 | ecn
		if got := p.Apply(0, d, nil)[0].Datagram.TClass; got != 0xa0|want {
			t.Errorf("ECN %02b became %#x, want %#x", ecn, got, 0xa0|want)
		}
	}
	if c := p.Counters(); c.Marked != 2 {
		t.Errorf("marked %d, want 2: packets that arrive with CE are not counted", c.Marked)
	}
}

func TestRateSpacesPacketsAndDropsAtQueueLimit(t *testing.T) {
	// 35 bytes of IP at 28 Mb/s: 10 µs a packet. The queue holds three.
	p := specPipe(t, Spec{RateBps: 28_000_000, QueueBytes: 3 * 35})
	var delays []time.Duration
	for range 5 {
		for _, o := range p.Apply(0, datagram(toyPacket(1, 1, 1)), nil) {
			delays = append(delays, o.Delay)
		}
	}
	want := []time.Duration{10 * time.Microsecond, 20 * time.Microsecond, 30 * time.Microsecond}
	if !reflect.DeepEqual(delays, want) || p.Counters().Overflowed != 2 {
		t.Errorf("delays %v, overflowed %d, want %v and 2", delays, p.Counters().Overflowed, want)
	}
	tiny := specPipe(t, Spec{RateBps: 28_000_000, QueueBytes: 1})
	if out := tiny.Apply(0, datagram(toyPacket(1, 1, 1)), nil); len(out) != 0 {
		t.Errorf("a queue of one byte holds %+v", out)
	}
	if out := p.Apply(10_000, datagram(toyPacket(1, 1, 1)), nil); len(out) != 1 || out[0].Delay != 30*time.Microsecond {
		t.Errorf("after one departed: %+v, want it queued", out)
	}
}

func TestSpecAppliesFromUntil(t *testing.T) {
	p := specPipe(t, Spec{LossPPM: PPM, From: 100, Until: 200})
	for now, want := range map[mono.Time]int{0: 1, 99: 1, 100: 0, 199: 0, 200: 1, 1000: 1} {
		if got := len(p.Apply(now, datagram(nil), nil)); got != want {
			t.Errorf("at %d: %d packets, want %d", now, got, want)
		}
	}
}

func TestSpecsApplyInOrder(t *testing.T) {
	p := pipe(t, Config{Specs: []Spec{{DuplicatePPM: PPM, Delay: 1}, {DuplicatePPM: PPM, Delay: 10}}})
	out := p.Apply(0, datagram(nil), nil)
	if len(out) != 4 {
		t.Fatalf("%d copies, want 4: each spec doubles", len(out))
	}
	for _, o := range out {
		if o.Delay != 11 {
			t.Errorf("delay %v, want 11ns: each spec adds its own", o.Delay)
		}
	}
}

// The smallest value enables a kind, and only that kind has a random stream.
func TestOnlyEnabledKindsHaveStreams(t *testing.T) {
	for want, s := range map[string]Spec{
		"":           {Delay: 1, KeepOrder: true, RateBps: 1, QueueBytes: 1},
		"loss":       {LossPPM: 1},
		"burst":      {Burst: GilbertElliott{LossGoodPPM: 1}},
		"duplicate":  {DuplicatePPM: 1},
		"reorder":    {ReorderPPM: 1},
		"jitter":     {Jitter: 1},
		"corrupt":    {CorruptPPM: 1},
		"truncate":   {TruncatePPM: 1},
		"mark":       {MarkPPM: 1},
		"queue_mark": {QueueMarks: QueueMarks{MaxBytes: 1}},
	} {
		var kinds []string
		newStage(s, func(kind string) Source { kinds = append(kinds, kind); return fixed(0) })
		if got := strings.Join(kinds, " "); got != want {
			t.Errorf("%+v: streams %q, want %q", s, got, want)
		}
	}
}

// Enabling a kind must not change the decisions of another.
func TestKindsUseIndependentStreams(t *testing.T) {
	all := Spec{
		LossPPM: 300_000, Burst: GilbertElliott{ToBadPPM: 100_000, ToGoodPPM: 200_000, LossBadPPM: 900_000},
		DuplicatePPM: 300_000, ReorderPPM: 300_000, ReorderDelay: 1, Jitter: 1000,
		CorruptPPM: 300_000, TruncatePPM: 300_000, MarkPPM: 300_000,
	}
	together := newStage(all, sources(3))
	alone := map[string]*stage{}
	for name, s := range map[string]Spec{
		"loss": {LossPPM: all.LossPPM}, "burst": {Burst: all.Burst}, "duplicate": {DuplicatePPM: all.DuplicatePPM},
		"reorder": {ReorderPPM: all.ReorderPPM, ReorderDelay: 1}, "jitter": {Jitter: all.Jitter},
		"corrupt": {CorruptPPM: all.CorruptPPM}, "truncate": {TruncatePPM: all.TruncatePPM}, "mark": {MarkPPM: all.MarkPPM},
	} {
		alone[name] = newStage(s, sources(3))
	}
	for i := range 1000 {
		want := together.decide()
		var got decision
		for name, s := range alone {
			f := s.decide()
			switch name {
			case "loss":
				got.lost = f.lost
			case "burst":
				got.lostInBurst = f.lostInBurst
			case "duplicate":
				got.duplicate = f.duplicate
			case "reorder":
				got.reorder = f.reorder
			case "jitter":
				got.jitter = f.jitter
			case "corrupt":
				got.corrupt, got.corruptAt = f.corrupt, f.corruptAt
			case "truncate":
				got.truncate, got.truncateTo = f.truncate, f.truncateTo
			case "mark":
				got.mark = f.mark
			}
		}
		if got != want {
			t.Fatalf("packet %d: alone %+v, together %+v", i, got, want)
		}
	}
}

func TestSameSeedSameOutcomes(t *testing.T) {
	s := Spec{LossPPM: 100_000, DuplicatePPM: 100_000, Jitter: 1000, CorruptPPM: 100_000}
	run := func(seed uint64) [][]Outcome {
		p := must.Get(NewPipe(Config{Specs: []Spec{s}}, nil, sources(seed)))(t)
		return feed(p, 500)
	}
	if !reflect.DeepEqual(run(1), run(1)) {
		t.Error("seed 1 gave two different runs")
	}
	if reflect.DeepEqual(run(1), run(2)) {
		t.Error("seeds 1 and 2 gave the same run")
	}
}

func TestImpairingDoesNotAllocate(t *testing.T) {
	p := specPipe(t, Spec{
		LossPPM: 10_000, DuplicatePPM: 200_000, Jitter: 1000, CorruptPPM: 500_000, TruncatePPM: 100_000, RateBps: 1e9,
	})
	d := datagram(make([]byte, 1000))
	var out []Outcome
	now := mono.Time(0)
	run := func() { now += 10_000; out = p.Apply(now, d, out[:0]) }
	for range 100 {
		run()
	}
	if n := testing.AllocsPerRun(1000, run); n != 0 {
		t.Errorf("Apply allocates %v times", n)
	}
}

func TestValidateReportsEveryError(t *testing.T) {
	for _, tc := range []struct {
		spec Spec
		want string
	}{
		{Spec{LossPPM: PPM + 1}, "loss_ppm: 1000001 is more than 1000000"},
		{Spec{DuplicatePPM: PPM + 1}, "duplicate_ppm"},
		{Spec{MarkPPM: 2 * PPM}, "mark_ppm"},
		{Spec{Burst: GilbertElliott{ToBadPPM: PPM + 1, LossBadPPM: 1}}, "burst.to_bad_ppm"},
		{Spec{Burst: GilbertElliott{ToBadPPM: 1}}, "burst: loses nothing in either state"},
		{Spec{Delay: -1}, "delay: -1ns is negative"},
		{Spec{Jitter: -1}, "jitter: -1ns is negative"},
		{Spec{ReorderPPM: 1}, "set reorder_delay"},
		{Spec{From: 10, Until: 10}, "an empty span"},
		{Spec{From: -1}, "an empty span"},
		{Spec{QueueBytes: 1}, "without rate_bps"},
		{Spec{QueueBytes: -1, RateBps: 1}, "queue_bytes: -1 is negative"},
		{Spec{Burst: GilbertElliott{ToGoodPPM: PPM + 1, LossBadPPM: 1}}, "burst.to_good_ppm"},
		{Spec{Burst: GilbertElliott{LossBadPPM: PPM + 1}}, "burst.loss_bad_ppm"},
		{Spec{Burst: GilbertElliott{LossGoodPPM: PPM + 1}}, "burst.loss_good_ppm"},
		{Spec{ReorderPPM: PPM + 1, ReorderDelay: 1}, "reorder_ppm"},
		{Spec{CorruptPPM: PPM + 1}, "corrupt_ppm"},
		{Spec{TruncatePPM: PPM + 1}, "truncate_ppm"},
		{Spec{DuplicateDelay: -1}, "duplicate_delay: -1ns is negative"},
		{Spec{ReorderDelay: -1}, "reorder_delay: -1ns is negative"},
		{Spec{QueueMarks: QueueMarks{MaxBytes: 1}}, "queue_marks: without rate_bps"},
		{Spec{RateBps: 1, QueueMarks: QueueMarks{MinBytes: -1, MaxBytes: 1}}, "queue_marks: -1 to 1 bytes"},
		{Spec{RateBps: 1, QueueMarks: QueueMarks{MinBytes: 2, MaxBytes: 1}}, "queue_marks: 2 to 1 bytes"},
		{Spec{RateBps: 1, QueueMarks: QueueMarks{MaxPPM: 1}}, "queue_marks: 0 to 0 bytes"},
		{Spec{RateBps: 1, QueueMarks: QueueMarks{MaxBytes: 1, MaxPPM: PPM + 1}}, "queue_marks.max_ppm"},
	} {
		err := tc.spec.Validate()
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %q", tc.spec, err, tc.want)
		}
		if _, err := NewPipe(Config{Specs: []Spec{{}, tc.spec}}, nil, sources(1)); err == nil || !strings.Contains(err.Error(), "specs[1]: ") {
			t.Errorf("NewPipe: %v, want the path of the field", err)
		}
	}
	two := Spec{LossPPM: PPM + 1, Delay: -1}
	if err := two.Validate(); strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("two errors gave %q", err)
	}
	for _, good := range []Spec{
		{LossPPM: PPM, Burst: GilbertElliott{ToBadPPM: 1, LossBadPPM: 1}, RateBps: 1, QueueBytes: 1, From: 1, Until: 2},
		{Burst: GilbertElliott{LossGoodPPM: PPM}, ReorderPPM: 1, ReorderDelay: 1, From: 1},
		{RateBps: 1, QueueMarks: QueueMarks{MinBytes: 1, MaxBytes: 1, MaxPPM: PPM}, Until: 1},
	} {
		if err := good.Validate(); err != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
}

func TestConfigJSONRoundTrip(t *testing.T) {
	cfg := Config{
		Specs: []Spec{{LossPPM: 10, Delay: time.Microsecond, From: 5, Burst: GilbertElliott{LossBadPPM: 3}}},
		Events: []Event{{
			Match:      Match{Dst: netip.MustParseAddr("fd00::1"), Flow: new(Flow(0x11)), Seq: new(uint32(7))},
			Occurrence: 3,
			Action:     Action{Kind: SetField, Field: "psn", Value: 9},
		}},
	}
	text := must.Get(json.Marshal(cfg))(t)
	const want = `{"specs":[{"from":5,"loss_ppm":10,"burst":{"loss_bad_ppm":3},"delay":1000}],` +
		`"events":[{"match":{"dst":"fd00::1","flow":17,"seq":7},"time":3,"action":{"kind":"set_field","field":"psn","value":9}}]}`
	if string(text) != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	var back Config
	if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back, cfg) {
		t.Errorf("round trip: %+v, %v", back, err)
	}
}
