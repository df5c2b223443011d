package work_test

import (
	"errors"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/env"
	"github.com/fabrictest/fabrictest/mpi/wire"
	"github.com/fabrictest/fabrictest/mpi/work"
)

// twice hands a rank the first word without data twice, as if it had been sent for two
// barriers.
type twice struct {
	mpi.Upper
	did *bool
}

func (d twice) Arrived(peer int, h *wire.Header, data []byte) error {
	if len(data) == 0 && h.Kind == wire.Eager && !*d.did {
		*d.did = true
		if err := d.Upper.Arrived(peer, h, data); err != nil {
			return err
		}
	}
	return d.Upper.Arrived(peer, h, data)
}

// Who leaves a barrier before the last has come is found out.
func TestLeavingABarrierEarlyIsFound(t *testing.T) {
	for _, name := range []string{"barrier", "muster"} {
		wl, err := work.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		did := false
		o := mpi.Options{Open: func(e *env.Env, up mpi.Upper) (mpi.Carrier, error) {
			if e.Rank == 0 { // the other one is late
				up = twice{up, &did}
			}
			return mpi.OverVerbs(carrier.Config{})(e, up)
		}}
		_, _, err = inWorld(mpihost.Fabric{Ranks: 2, Limit: time.Minute}, o, wl, work.Params{Iterations: 4})
		var wrong *work.VerificationError
		if !errors.As(err, &wrong) || wrong.Want != "nobody" || wrong.Rank != 1 {
			t.Errorf("%s: %v, %v", name, err, did)
		}
	}
}
