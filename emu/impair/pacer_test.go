package impair

import (
	"testing"

	"github.com/fabrictest/fabrictest/emu/mono"
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
	if p.Backlog(100) != 0 || p.Next(100, 1) != 101 {
		t.Error("Reset did not forget")
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
		t.Error("the zero Pacer takes time")
	}
}
