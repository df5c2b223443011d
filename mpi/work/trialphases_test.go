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

// phases are what a rank can be at when something happens to it, in the order in which
// everything goes through them. The first is before the program, and the last behind it.
var phases = []string{"set-up", "first words", "eager", "rendezvous", "fence", "post and start", "lock", "collective", "end"}

// everything is a program that goes through all of them, and tells when it is where. All
// ranks talk to their neighbours, and check what they get.
func everything(w *mpi.World, reach func(phase string)) error {
	right, left := (w.Rank()+1)%w.Size(), (w.Rank()+w.Size()-1)%w.Size()
	reach("first words")
	win, err := w.WinAllocate(4096)
	if err != nil {
		return err
	}
	reach("eager")
	for i := range 50 {
		if err := pass(w, right, left, 100, i); err != nil {
			return err
		}
	}
	reach("rendezvous")
	for i := range 5 {
		if err := pass(w, right, left, 100_000, i); err != nil {
			return err
		}
	}
	reach("fence")
	if err := fences(w, win, right, left); err != nil {
		return err
	}
	reach("post and start")
	for range 5 {
		err := errors.Join(win.Post([]int{left}, 0), win.Start([]int{right}, 0), win.Put(message(w.Rank(), 1000), right, 0), win.Complete(), win.Wait())
		if err == nil && !bytes.Equal(win.Memory()[:1000], message(left, 1000)) {
			err = fmt.Errorf("rank %d: what rank %d has put is wrong", w.Rank(), left)
		}
		if err != nil {
			return err
		}
	}
	reach("lock")
	if err := locks(w, win); err != nil {
		return err
	}
	reach("collective")
	for i := range 5 {
		sum := binary.LittleEndian.AppendUint64(nil, uint64(w.Rank()+i))
		if err := w.Allreduce(sum, mpi.Uint64, mpi.Sum); err != nil {
			return err
		}
		if n := uint64(w.Size()); binary.LittleEndian.Uint64(sum) != n*(n-1)/2+n*uint64(i) {
			return fmt.Errorf("rank %d: the sum is %d", w.Rank(), binary.LittleEndian.Uint64(sum))
		}
	}
	reach("end")
	return nil
}

func message(id, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(id + i*7)
	}
	return b
}

// pass sends a message to one neighbour and receives another's.
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
			err = fmt.Errorf("rank %d: what rank %d has put is wrong", w.Rank(), left)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// locks has all ranks count in the memory of each in turn.
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
		return fmt.Errorf("rank %d: %d ranks have counted", w.Rank(), n)
	}
	return nil
}

// way is a way to carry what ranks say.
type way struct {
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

// ways are all designs of all providers.
func ways() (all []way) {
	for _, p := range nics.All() {
		for _, design := range designsOf(p) {
			all = append(all, way{p.Name, design})
		}
	}
	return all
}

// In every phase, on every provider and in every design: when a rank is killed or cut off,
// all others end with an error that says so, soon.
func TestLossInEveryPhase(t *testing.T) {
	t.Parallel()
	const victim = 1
	k := 0
	for _, way := range ways() {
		for _, what := range []disaster{killed, cutOff} {
			for _, phase := range phases {
				if k++; few() && k%7 != 0 || !part.Has(k) {
					continue
				}
				f := mpihost.Fabric{Ranks: 3, Provider: way.provider, Seed: uint64(k), Limit: limit, Events: events}
				o := mpi.Options{Carrier: carrier.Config{Design: way.design}, Progress: mpi.ProgressMode(k % 2)}
				o.P2P.Protocol = []p2p.Protocol{p2p.RGET, p2p.RPUT, p2p.Speculative}[k/3%3]
				after := []time.Duration{0, 2 * time.Microsecond, 9 * time.Microsecond}[k/2%3]
				at, out, err := loseIn(f, o, phase, after, what, victim)
				name := fmt.Sprintf("%s %s %v %v: %s %v into %s", way.provider, way.design, o.P2P.Protocol, o.Progress, what, after, phase)
				var hung *mpihost.HungError
				if errors.As(err, &hung) {
					t.Errorf("%s: %v", name, err)
					continue
				}
				for i, r := range out.Ranks {
					wantLost := (i != victim || what == cutOff) && phase != "end" // by then a rank may have all that it needs
					if wantLost && r.Err == nil || r.Err != nil && !errors.Is(r.Err, mpi.ErrPeerLost) || r.Ended > at+soon {
						t.Errorf("%s at %v: rank %d has ended at %v with %v", name, at, i, r.Ended, r.Err)
					}
				}
			}
		}
	}
}

// loseIn runs everything, and has something happen to a rank a while after it has reached
// a phase. It returns when.
func loseIn(f mpihost.Fabric, o mpi.Options, phase string, after time.Duration, what disaster, victim int) (at time.Duration, out mpihost.Outcome, err error) {
	var world *mpihost.World
	f.Script = func(w *mpihost.World) { world = w }
	reach := func(rank int, reached string) {
		if rank != victim || reached != phase {
			return
		}
		at = world.Now() + after
		world.At(at, func() {
			if what == killed {
				world.Kill(victim)
			} else {
				world.LinkDown(world.Host(victim), -1)
			}
		})
	}
	out, err = mpihost.InWorld(f, func(e *transport.Env) error {
		reach(e.Rank, "set-up")
		return mpi.Run(e, o, func(w *mpi.World) error {
			return everything(w, func(phase string) { reach(w.Rank(), phase) })
		})
	})
	return at, out, err
}

// Without a disaster everything goes well, everywhere: what the others say is its doing.
func TestEverythingGoesWell(t *testing.T) {
	t.Parallel()
	for i, way := range ways() {
		f := mpihost.Fabric{Ranks: 3, PerHost: 1 + i%2, Provider: way.provider, Limit: limit, Events: events}
		if _, _, err := loseIn(f, mpi.Options{Carrier: carrier.Config{Design: way.design}}, "never", 0, killed, 1); err != nil {
			t.Errorf("%v: %v", way, err)
		}
	}
}
