package nic

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/emu/mono"
)

type sleeper struct {
	timer Timer[sleeper]
	at    mono.Time // expected deadline
}

func sleepers(n int) []*sleeper {
	all := make([]*sleeper, n)
	for i := range all {
		all[i] = &sleeper{at: mono.Never}
		all[i].timer.Owner, all[i].timer.TieBreak = all[i], uint32(i)
	}
	return all
}

func drain(h *TimerHeap[sleeper], now mono.Time) (ranks []uint32) {
	for s := h.PopExpired(now); s != nil; s = h.PopExpired(now) {
		ranks = append(ranks, s.timer.TieBreak)
	}
	return ranks
}

func TestTimersExpireByDeadlineThenTieBreak(t *testing.T) {
	var h TimerHeap[sleeper]
	all := sleepers(10)
	if h.Next() != mono.Never || h.PopExpired(mono.Never-1) != nil {
		t.Error("an empty heap has an expired timer")
	}
	for i, at := range map[int]mono.Time{5: 20, 9: 10, 1: 30, 4: 10, 7: 20, 2: 10} {
		h.Set(&all[i].timer, at)
	}
	if h.Next() != 10 || drain(&h, 9) != nil {
		t.Errorf("next is %v", h.Next())
	}
	if got, want := drain(&h, 29), []uint32{2, 4, 9, 5, 7}; !slices.Equal(got, want) {
		t.Errorf("got %d, want %d", got, want)
	}
	if h.Next() != 30 || h.Len() != 1 || all[2].timer.IsSet() || !all[1].timer.IsSet() {
		t.Errorf("next is %v, of %d", h.Next(), h.Len())
	}
}

func TestSetIfEarlierNeverMovesLater(t *testing.T) {
	var h TimerHeap[sleeper]
	s := sleepers(1)[0]
	h.SetIfEarlier(&s.timer, mono.Never)
	if s.timer.IsSet() {
		t.Error("the timer is set for Never")
	}
	for _, c := range []struct{ at, want mono.Time }{{20, 20}, {30, 20}, {mono.Never, 20}, {10, 10}} {
		if h.SetIfEarlier(&s.timer, c.at); h.Next() != c.want {
			t.Errorf("after %v it is set for %v, want %v", c.at, h.Next(), c.want)
		}
	}
}

// Random operations on the heap are compared with a list that is searched.
func TestTimerHeapMatchesList(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var h TimerHeap[sleeper]
		all := sleepers(40)
		for now := mono.Time(0); now < 1000; now++ {
			for range rng.IntN(5) {
				s := all[rng.IntN(len(all))]
				switch at := now + 1 + mono.Time(rng.IntN(100)); rng.IntN(8) {
				case 0:
					s.at = mono.Never
					h.Stop(&s.timer)
				case 1:
					s.at = mono.Never
					h.Set(&s.timer, mono.Never)
				case 2:
					s.at = min(s.at, at)
					h.SetIfEarlier(&s.timer, at)
				default:
					s.at = at
					h.Set(&s.timer, at)
				}
			}
			due := slices.DeleteFunc(slices.Clone(all), func(s *sleeper) bool { return s.at > now })
			slices.SortFunc(due, func(a, b *sleeper) int {
				return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.timer.TieBreak, b.timer.TieBreak))
			})
			var want []uint32
			for _, s := range due {
				want = append(want, s.timer.TieBreak)
				s.at = mono.Never
			}
			if got := drain(&h, now); !slices.Equal(got, want) {
				t.Fatalf("seed %d at %v: due %d, want %d", seed, now, got, want)
			}
			next, set := mono.Never, 0
			for _, s := range all {
				next = min(next, s.at)
				if s.timer.IsSet() != (s.at != mono.Never) {
					t.Fatalf("seed %d at %v: %d is set %v", seed, now, s.timer.TieBreak, s.timer.IsSet())
				}
				if s.timer.IsSet() {
					set++
				}
			}
			if h.Next() != next || h.Len() != set {
				t.Fatalf("seed %d at %v: next of %d is %v, want %v of %d", seed, now, h.Len(), h.Next(), next, set)
			}
		}
	}
}

func TestTimersDoNotAllocate(t *testing.T) {
	var h TimerHeap[sleeper]
	all := sleepers(64)
	now := mono.Time(0)
	round := func() {
		now += 100
		for i, s := range all {
			h.Set(&s.timer, now+mono.Time(i*37%64))
		}
		for h.PopExpired(now+64) != nil {
			continue
		}
	}
	round()
	if n := testing.AllocsPerRun(100, round); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
