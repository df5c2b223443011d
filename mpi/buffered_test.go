package mpi_test

import (
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/p2p"
)

// A message that was received leaves a gap in the attached buffer, which later messages fill.
func TestAttachedBufferReusesFreedSpace(t *testing.T) {
	const first, middle, last, fits, fillsUp, tooMuch, signal = 1, 2, 3, 4, 5, 6, 7
	o := mpi.Options{P2P: p2p.Config{EagerLimit: eagerLimit}} // longer messages wait for their receives
	newFabric(t, 2, 1, false).succeed(o, func(w *mpi.World) error {
		if w.Rank() == 1 {
			recv := func(tags ...int) {
				for _, tag := range tags {
					must.Get(w.Recv(make([]byte, 400), 0, tag))(t)
				}
			}
			recv(middle)
			must.Do(t, w.Send(nil, 0, signal))
			recv(signal, first, last, fits, fillsUp)
			return nil
		}
		must.Do(t, w.AttachBuffer(1000))
		bsend := func(n, tag int) error { return w.Bsend(make([]byte, n), 1, tag) }
		must.Do(t, bsend(400, first))
		must.Do(t, bsend(300, middle))
		must.Do(t, bsend(300, last))
		must.Fail(t, "Bsend with a full buffer", bsend(1, tooMuch), mpi.ErrBuffer)
		must.Get(w.Recv(nil, 1, signal))(t)
		must.Fail(t, "Bsend of 310 bytes with a gap of 300", bsend(310, tooMuch), mpi.ErrBuffer)
		must.Do(t, bsend(200, fits))
		must.Do(t, bsend(100, fillsUp))
		must.Fail(t, "Bsend with a full buffer", bsend(1, tooMuch), mpi.ErrBuffer)
		must.Do(t, w.Send(nil, 1, signal))
		return w.DetachBuffer()
	})
}
