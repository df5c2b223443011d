package impair

import (
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
)

func TestPacerIsExactOverManyPackets(t *testing.T) {
	for _, rate := range []uint64{1, 7, 1_000_000, 10e9, 25e9, 100e9, 400e9, 333_333_333_333} {
		p := Pacer{RateBps: rate}
		total, last := uint64(0), mono.Time(0)
		for i := range 1000 {
			n := 1 + (i*7919)%1500
			if rate < 100 {
				n = 1
			}
			total += uint64(n)
			last = p.Next(0, n)
		}
		if want := mono.Time(total * 8e9 / rate); last != want {
			t.Errorf("%d b/s: %d bytes leave at %d, want %d", rate, total, last, want)
		}
	}
}

// A fraction that was left at a higher rate takes its time at the lower one.
func TestPacerKeepsFractionsAtAnotherRate(t *testing.T) {
	p := Pacer{RateBps: 7e9}
	departs := p.Next(0, 6) // 48 bits: 6.86 ns, so that 6e9 nanobits are left
	p.RateBps = 1e9
	if took := p.Next(0, 6) - departs; departs != 6 || took != 54 { // 48 + 6 ns
		t.Errorf("the first bytes leave at %d, the next %d later, want 6 and 54", departs, took)
	}
}

func TestPacerDropsFractionsWhenIdle(t *testing.T) {
	p := Pacer{RateBps: 3e9}
	first := p.Next(0, 1) // 2.67 ns
	if again := p.Next(1000, 1); again-1000 != first {
		t.Errorf("first byte took %d, a later one %d: idle time must not count", first, again-1000)
	}
}

func TestPacerBacklogCountsDown(t *testing.T) {
	p := Pacer{RateBps: 8e9} // a byte a nanosecond
	p.Next(100, 1000)
	for now, want := range map[mono.Time]int64{100: 1000, 101: 999, 1099: 1, 1100: 0, 5000: 0} {
		if got := p.Backlog(now); got != want {
			t.Errorf("at %d: backlog %d, want %d", now, got, want)
		}
	}
	p.Reset()
	if want := (Pacer{RateBps: 8e9}); p != want {
		t.Errorf("after Reset %+v, want %+v", p, want)
	}
}

// At the lowest rate, a part of a byte is in the backlog until its last bit has left.
func TestPacerBacklogIsRoundedUp(t *testing.T) {
	p := Pacer{RateBps: 1}
	last := p.Next(0, 1)
	if last != mono.Time(8*time.Second) || p.Backlog(0) != 1 || p.Backlog(last-1) != 1 || p.Backlog(last) != 0 {
		t.Errorf("the byte leaves at %d; backlog %d, then %d, then %d; want 8e9, 1, 1 and 0", last, p.Backlog(0), p.Backlog(last-1), p.Backlog(last))
	}
	out := specPipe(t, Spec{RateBps: 1}).Apply(0, datagram(make([]byte, 8)), nil)
	if len(out) != 1 || out[0].Delay != time.Duration(8*out[0].Datagram.IPBytes())*time.Second {
		t.Errorf("a packet at 1 bit/s: %+v", out)
	}
}

func TestPacerBacklogDoesNotOverflow(t *testing.T) {
	p := Pacer{RateBps: 400e9}
	for range 100 {
		p.Next(0, 1<<30)
	}
	if got := p.Backlog(0); got != 100<<30 {
		t.Errorf("backlog %d, want %d", got, int64(100<<30))
	}
}

func TestPacerWithoutRateIsImmediate(t *testing.T) {
	var p Pacer
	if p.Next(5, 1<<30) != 5 || p.Backlog(5) != 0 {
		t.Error("the zero Pacer delays packets")
	}
}

// The stream of a seed and a name never changes: recorded runs depend on it.
func TestNewRandIsStable(t *testing.T) {
	r := NewRand(7, "rail0/host0/rdma0/up/0/loss")
	if got := []uint64{r.Uint64(), r.Uint64()}; !slices.Equal(got, []uint64{0xf81d901fbc44f0ca, 0x3ebace2a64de36f7}) {
		t.Errorf("%#x", got)
	}
	if NewRand(7, "a").Uint64() == NewRand(8, "a").Uint64() || NewRand(7, "a").Uint64() == NewRand(7, "b").Uint64() {
		t.Error("another seed or name gives the same stream")
	}
	if got, want := RandSources(7, "rail0/host0/rdma0/up")("0/loss").Uint64(), NewRand(7, "rail0/host0/rdma0/up/0/loss").Uint64(); got != want {
		t.Errorf("RandSources uses another stream: %#x, want %#x", got, want)
	}
}

// lossesOf applies a Pipe to n packets and returns which were dropped.
func lossesOf(p *Pipe, n int) (lost []int) {
	for i := range n {
		if len(p.Apply(mono.Time(i), &link.Datagram{Payload: []byte{1, 2, 3}}, nil)) == 0 {
			lost = append(lost, i)
		}
	}
	return lost
}

// A Spec that is set again continues its random stream.
func TestSetSpecsContinuesStreams(t *testing.T) {
	spec := []Spec{{LossPPM: 300_000}}
	cfg := Config{Specs: spec, Events: []Event{{Match: Match{Nth: new(uint64(120))}, Action: Action{Kind: Truncate, Bytes: 1}}}}
	whole, _ := NewPipe(cfg, nil, RandSources(1, "x"))
	want := lossesOf(whole, 100)
	want2 := lossesOf(whole, 100)

	p := must.Get(NewPipe(cfg, nil, RandSources(1, "x")))(t)
	if got := lossesOf(p, 100); !slices.Equal(got, want) {
		t.Errorf("lost %v, want %v", got, want)
	}
	must.Do(t, p.SetSpecs(nil))
	if got := lossesOf(p, 50); len(got) != 0 || !slices.Equal(p.Fired(), []uint64{1}) {
		t.Errorf("lost %v of a pipe without loss; the event fired %v", got, p.Fired())
	}
	must.Do(t, p.SetSpecs(spec))
	if got := lossesOf(p, 100); !slices.Equal(got, want2) {
		t.Errorf("lost %v after the Spec was set again, want %v", got, want2)
	}
	if c := p.Counters(); c.Lost != uint64(len(want)+len(want2)) || c.Offered != 250 {
		t.Errorf("%+v", c)
	}
	if err := p.SetSpecs([]Spec{{LossPPM: PPM + 1}}); err == nil {
		t.Error("an invalid Spec was accepted")
	}
}

func TestQueueMarkProbabilityGrowsWithQueue(t *testing.T) {
	m := QueueMarks{MinBytes: 1000, MaxBytes: 3000, MaxPPM: 100_000}
	for _, c := range []struct {
		queued int64
		draw   uint64
		want   bool
	}{
		{0, 0, false},
		{1000, 0, false},
		{1001, 0, true},
		{2000, 49_999, true},
		{2000, 50_000, false},
		{3000, 99_999, true},
		{3000, 100_000, false},
		{3001, PPM - 1, true},
	} {
		if got := m.ShouldMark(c.queued, c.draw); got != c.want {
			t.Errorf("a queue of %d bytes, draw %d: marked %v, want %v", c.queued, c.draw, got, c.want)
		}
	}
	if (&QueueMarks{}).ShouldMark(1<<40, 0) {
		t.Error("the zero QueueMarks marks packets")
	}
}

func TestRateLimitMarksPacketsOfLongQueue(t *testing.T) {
	spec := Spec{RateBps: 8_000_000, QueueMarks: QueueMarks{MinBytes: 2000, MaxBytes: 2000}}
	p := must.Get(NewPipe(Config{Specs: []Spec{spec}}, nil, func(string) Source { return &counting{} }))(t)
	var marked []bool
	for range 5 {
		d := link.Datagram{TClass: link.ECT0, Payload: make([]byte, 952)} // 1000 bytes of IPv6
		for _, o := range p.Apply(mono.Time(0), &d, nil) {
			marked = append(marked, o.Datagram.ECNBits() == link.CE)
		}
	}
	// Packets find queues of 0, 1000, 2000, 3000 and 4000 bytes.
	want := []bool{false, false, false, true, true}
	if len(marked) != len(want) || p.Counters().Marked != 2 {
		t.Fatalf("marked %v, counted %d", marked, p.Counters().Marked)
	}
	for i := range want {
		if marked[i] != want[i] {
			t.Fatalf("marked %v, want %v", marked, want)
		}
	}
}

// Between the limits of the queue, a random number decides.
func TestQueueMarksAreDrawn(t *testing.T) {
	for draw, want := range map[uint64]uint64{0: 2, 1<<64 - 1: 1} { // the smallest and the largest number
		spec := Spec{RateBps: 8_000_000, QueueMarks: QueueMarks{MinBytes: 1000, MaxBytes: 2000, MaxPPM: PPM / 2}}
		p := must.Get(NewPipe(Config{Specs: []Spec{spec}}, nil, func(string) Source { return fixed(draw) }))(t)
		for range 4 { // find queues of 0, 1000, 2000 and 3000 bytes
			p.Apply(0, &link.Datagram{TClass: link.ECT0, Payload: make([]byte, 952)}, nil)
		}
		if got := p.Counters().Marked; got != want {
			t.Errorf("draw %d: %d marked, want %d", draw, got, want)
		}
	}
}

// fixed is a Source of one number.
type fixed uint64

func (f fixed) Uint64() uint64 { return uint64(f) }

type counting struct{ n uint64 }

func (c *counting) Uint64() uint64 { c.n += 1 << 40; return c.n }
