package uswitch

import (
	"math/rand/v2"
	"time"
)

// lossy drops a fraction of the frames.
type lossy struct {
	rng *rand.PCG
	ppm uint64
}

func newLossy(seed, ppm uint64) *lossy { return &lossy{rand.NewPCG(seed, seed), ppm} }

func (l *lossy) Apply(_ time.Duration, f Frame, emit Emit) {
	if l.rng.Uint64()%1_000_000 >= l.ppm {
		emit(0, f)
	}
}
func (*lossy) NextTimer() time.Duration        { return Never }
func (*lossy) HandleTimer(time.Duration, Emit) {}

// delay delays every frame.
type delay struct{ by time.Duration }

func (d *delay) Apply(_ time.Duration, f Frame, emit Emit) { emit(d.by, f) }
func (*delay) NextTimer() time.Duration                    { return Never }
func (*delay) HandleTimer(time.Duration, Emit)             {}
