package sim

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
)

// Chooser makes the world's choices. An explorer enumerates them by answering
// differently from run to run; kind says what is being chosen ("run": the next
// program, "notify": which of those that wait), and the answer is in [0, n).
type Chooser interface {
	Choose(kind string, n int) int
}

// Choose picks one of n. Every choice of the world is made here. With one
// candidate there is no choice, and the Chooser is not asked.
func (w *World) Choose(kind string, n int) int {
	if n == 1 {
		return 0
	}
	if n < 1 {
		panic(fmt.Sprintf("sim: Choose(%q, %d): nothing to choose from", kind, n))
	}
	i := w.choices.Choose(kind, n)
	if i < 0 || i >= n {
		panic(fmt.Sprintf("sim: Chooser answered %d to Choose(%q, %d)", i, kind, n))
	}
	w.traceChoice(kind, n, i)
	return i
}

type seeded struct{ rng *rand.Rand }

func (s seeded) Choose(_ string, n int) int { return below(s.rng, n) }

// below returns a number in [0, n). It does not use the methods of rand.Rand
// that may take another path on 32-bit machines.
func below[N int | time.Duration](rng *rand.Rand, n N) N {
	hi, _ := bits.Mul64(rng.Uint64(), uint64(n))
	return N(hi)
}

// Rand returns the world's random stream of that name. It follows from the seed
// and the name alone, whatever other streams exist and whenever they are asked
// for: it is impair.Stream. Asking again gives the same stream, further on.
func (w *World) Rand(name string) *rand.Rand {
	if r, ok := w.streams[name]; ok {
		return r
	}
	r := impair.Stream(w.cfg.Seed, name)
	w.streams[name] = r
	return r
}
