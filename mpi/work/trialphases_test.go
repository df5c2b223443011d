package work_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/verbs"
)

// phases are the phases of runPhases in which a fault is injected, in order. The first is before
// the program, and the last after it.
var phases = []string{"set-up", "first message", "eager", "rendezvous", "fence", "post and start", "lock", "collective", "end"}

// runPhases is a program with all phases, which calls onPhase at the start of each. All ranks
// exchange data with their neighbours and check it.
func runPhases(w *mpi.World, onPhase func(phase string)) error {
	right, left := (w.Rank()+1)%w.Size(), (w.Rank()+w.Size()-1)%w.Size()
	onPhase("first message")
	win, err := w.WinAllocate(4096)
	if err != nil {
		return err
	}
	onPhase("eager")
	for i := range 50 {
		if err := pass(w, right, left, 100, i); err != nil {
			return err
		}
	}
	onPhase("rendezvous")
	for i := range 5 {
		if err := pass(w, right, left, 100_000, i); err != nil {
			return err
		}
	}
	onPhase("fence")
	if err := fences(w, win, right, left); err != nil {
		return err
	}
	onPhase("post and start")
	for range 5 {
		err := errors.Join(win.Post([]int{left}, 0), win.Start([]int{right}, 0), win.Put(message(w.Rank(), 1000), right, 0), win.Complete(), win.Wait())
		if err == nil && !bytes.Equal(win.Memory()[:1000], message(left, 1000)) {
			err = fmt.Errorf("rank %d: the data put by rank %d is wrong", w.Rank(), left)
		}
		if err != nil {
			return err
		}
	}
	onPhase("lock")
	if err := locks(w, win); err != nil {
		return err
	}
	onPhase("collective")
	for i := range 5 {
		sum := binary.LittleEndian.AppendUint64(nil, uint64(w.Rank()+i))
		if err := w.Allreduce(mpi.InPlace, sum, mpi.Uint64, mpi.Sum); err != nil {
			return err
		}
		if n := uint64(w.Size()); binary.LittleEndian.Uint64(sum) != n*(n-1)/2+n*uint64(i) {
			return fmt.Errorf("rank %d: the sum is %d", w.Rank(), binary.LittleEndian.Uint64(sum))
		}
	}
	onPhase("end")
	return nil
}

func message(id, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(id + i*7)
	}
	return b
}

// pass sends a message to the right neighbour and receives one from the left.
func pass(w *mpi.World, right, left, n, id int) error {
	buf := make([]byte, n)
	if _, err := w.Sendrecv(message(w.Rank()+id, n), right, 1, buf, left, 1); err != nil {
		return err
	}
	if !bytes.Equal(buf, message(left+id, n)) {
		return fmt.Errorf("rank %d: message %d of %d bytes is wrong", w.Rank(), id, n)
	}
	return nil
}

func fences(w *mpi.World, win *mpi.Win, right, left int) error {
	for i := range 5 {
		err := errors.Join(win.Fence(0), win.Put(message(i, 2000), right, 0), win.Fence(mpi.NoSucceed))
		if err == nil && !bytes.Equal(win.Memory()[:2000], message(i, 2000)) {
			err = fmt.Errorf("rank %d: the data put by rank %d is wrong", w.Rank(), left)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// locks makes all ranks add 1 to a counter of each rank in turn.
func locks(w *mpi.World, win *mpi.Win) error {
	one, was := binary.LittleEndian.AppendUint64(nil, 1), make([]byte, 8)
	for target := range w.Size() {
		err := win.Lock(mpi.LockKind(target%2), target, 0)
		if err == nil {
			err = errors.Join(win.FetchAndOp(one, was, target, 2048, mpi.Uint64, mpi.Sum), win.Unlock(target))
		}
		if err != nil {
			return err
		}
	}
	if err := w.Barrier(); err != nil {
		return err
	}
	if n := binary.LittleEndian.Uint64(win.Memory()[2048:]); n != uint64(w.Size()) {
		return fmt.Errorf("rank %d: the counter is %d", w.Rank(), n)
	}
	return nil
}

// providerDesign is a provider, and a carrier design that its NICs support.
type providerDesign struct {
	provider string
	design   carrier.Design
}

// designsOf returns the designs that NICs of a provider support: UD and Hybrid need datagrams,
// and all but UD need connections.
func designsOf(p *nics.Provider) []carrier.Design {
	return slices.DeleteFunc(carrier.Designs(), func(d carrier.Design) bool {
		return (d == carrier.UD || d == carrier.Hybrid) && !p.Caps.Has(verbs.CapUD) || d != carrier.UD && !p.Caps.Has(verbs.CapRC)
	})
}

// providerDesigns returns all designs of all providers.
func providerDesigns() (all []providerDesign) {
	for _, p := range nics.All() {
		for _, design := range designsOf(p) {
			all = append(all, providerDesign{p.Name, design})
		}
	}
	return all
}

// In every phase, on every provider and design, all ranks return mpi.ErrPeerLost within
// detectTimeout when one is killed or its host loses all links.
func TestRanksDetectFaultsInEveryPhase(t *testing.T) {
	t.Parallel()
	const faulty = 1
	k := 0
	for _, pd := range providerDesigns() {
		for _, injected := range []fault{rankKilled, hostDown} {
			for _, phase := range phases {
				if k++; subsetOnly() && k%7 != 0 || !part.Has(k) {
					continue
				}
				f := mpihost.Fabric{Ranks: 3, Provider: pd.provider, Seed: uint64(k), Limit: limit, Events: events}
				o := mpi.Options{Carrier: carrier.Config{Design: pd.design}, Progress: mpi.ProgressMode(k % 2)}
				o.P2P.Protocol = []p2p.Protocol{p2p.RGET, p2p.RPUT, p2p.Speculative}[k/3%3]
				after := []time.Duration{0, 2 * time.Microsecond, 9 * time.Microsecond}[k/2%3]
				at, out, err := injectInPhase(f, o, phase, after, injected, faulty)
				name := fmt.Sprintf("%s %s %v %v: %s %v after phase %s", pd.provider, pd.design, o.P2P.Protocol, o.Progress, injected, after, phase)
				var hung *mpihost.HungError
				if errors.As(err, &hung) {
					t.Errorf("%s: %v", name, err)
					continue
				}
				for i, r := range out.Ranks {
					wantLost := (i != faulty || injected == hostDown) && phase != "end" // at the end a rank may need no peer
					if wantLost && r.Err == nil || r.Err != nil && !errors.Is(r.Err, mpi.ErrPeerLost) || r.Ended > at+detectTimeout {
						t.Errorf("%s at %v: rank %d ended at %v with %v", name, at, i, r.Ended, r.Err)
					}
				}
			}
		}
	}
}

// injectInPhase runs all phases, and injects a fault into a rank some time after the start of a
// phase. It returns the time of the fault.
func injectInPhase(f mpihost.Fabric, o mpi.Options, phase string, after time.Duration, injected fault, faulty int) (at time.Duration, out mpihost.Outcome, err error) {
	var world *mpihost.World
	f.Script = func(w *mpihost.World) { world = w }
	onPhase := func(rank int, reached string) {
		if rank != faulty || reached != phase {
			return
		}
		at = world.Now() + after
		world.At(at, func() {
			if injected == rankKilled {
				world.Kill(faulty)
			} else {
				world.LinkDown(world.Host(faulty), -1)
			}
		})
	}
	out, err = mpihost.InWorld(f, func(e *transport.Env) error {
		onPhase(e.Rank, "set-up")
		return mpi.Run(e, o, func(w *mpi.World) error {
			return runPhases(w, func(phase string) { onPhase(w.Rank(), phase) })
		})
	})
	return at, out, err
}

// Without a fault all phases succeed on every provider and design: errors in the other tests
// are effects of their faults.
func TestPhasesSucceedWithoutFault(t *testing.T) {
	t.Parallel()
	for i, pd := range providerDesigns() {
		f := mpihost.Fabric{Ranks: 3, PerHost: 1 + i%2, Provider: pd.provider, Limit: limit, Events: events}
		if _, _, err := injectInPhase(f, mpi.Options{Carrier: carrier.Config{Design: pd.design}}, "never", 0, rankKilled, 1); err != nil {
			t.Errorf("%v: %v", pd, err)
		}
	}
}
