package carrier_test

import (
	"errors"
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/verbs"
)

// fullDevice is a device that has room for few RC queue pairs.
type fullDevice struct {
	verbs.Context
	room int
}

func (d *fullDevice) CreateQP(init verbs.QPInit) (verbs.QP, error) {
	if init.Type == verbs.QPTypeRC {
		if d.room == 0 {
			return nil, verbs.ErrNoMemory
		}
		d.room--
	}
	return d.Context.CreateQP(init)
}

// If a rail has no second queue pair for the connection of a rank to itself, its first one is closed,
// and atomics use the other rail.
func TestRankWithHalfASelfConnectionUsesOtherRail(t *testing.T) {
	const adds = 20
	f := mpihost.Fabric{Ranks: 1, Rails: 2, Provider: "softroce", Seed: 1, Limit: time.Hour}
	must.Get(mpihost.InWorld(f, func(e *transport.Env) error {
		e.NICs[1].Device = &fullDevice{e.NICs[1].Device, 1}
		r := &rank{Env: e, lost: make(map[int]error), maxWait: time.Second}
		r.engine = p2p.New(p2p.Config{Protocol: p2p.RGET}, r)
		r.Carrier = must.Get(carrier.Open(e, carrier.Config{Design: carrier.SRQ}, r))(t)
		word := make([]uint64, 1)
		region := must.Get(r.Carrier.Register(unsafe.Slice((*byte)(unsafe.Pointer(&word[0])), 8)))(t)
		a := &atomicOwner{}
		for range adds {
			r.FetchAdd(0, region.Memory(), 1, a)
		}
		err := r.wait("atomics", func() bool { return a.done == adds })
		if stats := r.Stats(); stats.Connections != 1 || word[0] != adds {
			err = errors.Join(err, fmt.Errorf("%d connections, and the word is %d", stats.Connections, word[0]))
		}
		r.Carrier.Release(region)
		return errors.Join(err, a.err, r.leave())
	}))(t)
}
