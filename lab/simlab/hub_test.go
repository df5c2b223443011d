package simlab

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// A barrier opens when the last rank enters it or ends.
func TestBarrierOpensWhenLastRankEntersOrEnds(t *testing.T) {
	const size = 4
	w := sim.New(sim.Config{Seed: 1})
	h := NewHub(w, size)
	var marks []string
	h.OnMark = func(rank int, at time.Duration, what string) {
		marks = append(marks, fmt.Sprintf("%s at %v", what, at))
	}
	for rank := range size {
		c := h.Control(rank)
		w.Go(fmt.Sprint(rank), func(p *sim.Proc) error {
			defer h.End(rank)
			if rank == 0 {
				if err := c.Barrier(time.Microsecond); !errors.Is(err, verbs.ErrTimeout) {
					return fmt.Errorf("a barrier of one rank: %v", err)
				}
			}
			for round := range 3 {
				p.Sleep(time.Duration(rank+1) * time.Millisecond)
				if rank == size-1 && round == 2 {
					return nil
				}
				if err := c.Barrier(verbs.Forever); err != nil {
					return err
				}
				if rank == 0 {
					c.Mark(fmt.Sprint("round ", round))
				}
			}
			return nil
		})
	}
	must.Do(t, w.RunPrograms())
	if got, want := fmt.Sprint(marks), "[round 0 at 4ms round 1 at 8ms round 2 at 12ms]"; got != want {
		t.Errorf("marks %s, want %s", got, want)
	}
}
