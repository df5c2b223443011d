package uswitch

import (
	"math/rand/v2"
	"time"
)

// handlerFunc is a FrameHandler without timers.
type handlerFunc func(f Frame, emit Emit)

func (h handlerFunc) Apply(_ time.Duration, f Frame, emit Emit) { h(f, emit) }
func (handlerFunc) NextTimer() time.Duration                    { return Never }
func (handlerFunc) HandleTimer(time.Duration, Emit)             {}

// newLossy returns a FrameHandler that drops a fraction of the frames.
func newLossy(seed, ppm uint64) FrameHandler {
	rng := rand.NewPCG(seed, seed)
	return handlerFunc(func(f Frame, emit Emit) {
		if rng.Uint64()%1_000_000 >= ppm {
			emit(0, f)
		}
	})
}

// delay returns a FrameHandler that delays every frame.
func delay(by time.Duration) FrameHandler {
	return handlerFunc(func(f Frame, emit Emit) { emit(by, f) })
}
