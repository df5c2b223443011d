package drive

import (
	"testing"
	"time"
)

func TestASpinnerLearnsWhomItSharesAProcessorWith(t *testing.T) {
	var s spinner
	learn := func(away time.Duration, times int) uint32 {
		for range times {
			s.learn(s.hurry.Load(), away)
		}
		return patience >> s.hurry.Load()
	}
	for _, c := range []struct {
		who   string
		away  time.Duration
		times int
		polls uint32
	}{
		{"nobody", 300 * time.Nanosecond, 10, 64},
		{"another that spins", 5 * time.Microsecond, 1, 32},
		{"another that spins", 5 * time.Microsecond, 10, 2},
		{"one that computes", 3 * time.Millisecond, 2, 8},
		{"nobody", 300 * time.Nanosecond, 10, 64},
	} {
		if got := learn(c.away, c.times); got != c.polls {
			t.Errorf("shared %d times with %s: it polls %d times in vain, want %d", c.times, c.who, got, c.polls)
		}
	}
}

func TestWhatIsFoundEndsTheCount(t *testing.T) {
	var s spinner
	for range 3 * patience {
		s.fruitless.Store(patience - 2)
		s.idle()
		s.found()
	}
	if n := s.fruitless.Load(); n != 0 {
		t.Errorf("%d polls in vain are counted", n)
	}
}
