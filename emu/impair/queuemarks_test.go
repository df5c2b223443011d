package impair

import (
	"testing"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
)

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
		t.Error("the zero value marks")
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

type counting struct{ n uint64 }

func (c *counting) Uint64() uint64 { c.n += 1 << 40; return c.n }
