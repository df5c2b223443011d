package sim

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
)

// Chooser makes the world's choices. A model checker enumerates schedules by
// answering differently from run to run. kind is "run" (which program runs
// next) or "notify" (which waiter wakes); the answer is in [0, n).
type Chooser interface {
	Choose(kind string, n int) int
}

// Choose picks one of n. Every choice of the world is made here. The Chooser is
// not called if n is 1.
func (w *World) Choose(kind string, n int) int {
	if n == 1 {
		return 0
	}
	if n < 1 {
		panic(fmt.Sprintf("sim: Choose(%q, %d): nothing to choose from", kind, n))
	}
	i := w.chooser.Choose(kind, n)
	if i < 0 || i >= n {
		panic(fmt.Sprintf("sim: Chooser answered %d to Choose(%q, %d)", i, kind, n))
	}
	w.traceChoice(kind, n, i)
	return i
}

type randomChooser struct{ rng *rand.Rand }

func (s randomChooser) Choose(_ string, n int) int { return randBelow(s.rng, n) }

// randBelow returns a number in [0, n). It avoids the methods of rand.Rand
// whose results differ on 32-bit machines.
func randBelow[N int | time.Duration](rng *rand.Rand, n N) N {
	hi, _ := bits.Mul64(rng.Uint64(), uint64(n))
	return N(hi)
}

// Rand returns the random stream of that name, which depends only on the seed
// and the name (see impair.NewRand). Later calls return the same stream at its
// current position.
func (w *World) Rand(name string) *rand.Rand {
	if r, ok := w.rands[name]; ok {
		return r
	}
	r := impair.NewRand(w.cfg.Seed, name)
	w.rands[name] = r
	return r
}
