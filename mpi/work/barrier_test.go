package work_test

import (
	"errors"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/mpi/wire"
	"github.com/fabrictest/fabrictest/mpi/work"
)

// duplicatingUpper delivers the first message without data twice, as if it was sent for two
// barriers.
type duplicatingUpper struct {
	mpi.Upper
	did *bool
}

func (d duplicatingUpper) Arrived(peer int, h *wire.Header, data []byte) error {
	if len(data) == 0 && h.Kind == wire.Eager && !*d.did {
		*d.did = true
		if err := d.Upper.Arrived(peer, h, data); err != nil {
			return err
		}
	}
	return d.Upper.Arrived(peer, h, data)
}

// A rank that leaves a barrier before the last has entered is detected.
func TestEarlyBarrierExitIsDetected(t *testing.T) {
	for _, name := range []string{"barrier", "smoke"} {
		wl := must.Get(work.Find(name))(t)
		did := false
		o := mpi.Options{Open: func(e *transport.Env, up mpi.Upper) (mpi.Carrier, error) {
			if e.Rank == 0 { // rank 1 is late
				up = duplicatingUpper{up, &did}
			}
			return mpi.OverVerbs(carrier.Config{})(e, up)
		}}
		_, _, err := inWorld(mpihost.Fabric{Ranks: 2, Limit: time.Minute}, o, wl, work.Params{Iterations: 4})
		var wrong *work.VerificationError
		if !errors.As(err, &wrong) || wrong.Want != "none" || wrong.Rank != 1 {
			t.Errorf("%s: %v, %v", name, err, did)
		}
	}
}
