package mpi_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/coll"
)

// When a rank is killed, every call that needs it fails, and no other.
func TestKilledRankFailsDependentCalls(t *testing.T) {
	calls := map[string]func(*mpi.World) error{
		"send":                    func(w *mpi.World) error { return w.Ssend(testMessage(1, 1000), 1, 1) },
		"receive":                 func(w *mpi.World) error { return must.Err(w.Recv(nil, 1, 1)) },
		"receive from any source": func(w *mpi.World) error { return must.Err(w.Recv(nil, mpi.AnySource, mpi.AnyTag)) },
		"probe":                   func(w *mpi.World) error { return must.Err(w.Probe(1, 1)) },
		"matched probe of any source": func(w *mpi.World) error {
			_, _, err := w.Mprobe(mpi.AnySource, 1)
			return err
		},
		"wait any": func(w *mpi.World) error {
			a, err := w.Irecv(nil, 1, 1)
			if err != nil {
				return err
			}
			_, _, err = mpi.WaitAny([]*mpi.Request{nil, a})
			return err
		},
		"test": func(w *mpi.World) error {
			a, err := w.Irecv(nil, 1, 1)
			if err != nil {
				return err
			}
			for {
				if _, done, err := a.Test(); done {
					return err
				}
			}
		},
		"barrier": func(w *mpi.World) error { return w.Barrier() },
		"ibarrier": func(w *mpi.World) error {
			r, err := w.Ibarrier()
			if err != nil {
				return err
			}
			return must.Err(r.Wait())
		},
		"bcast":     func(w *mpi.World) error { return w.Bcast(make([]byte, 8), 1) },
		"allreduce": func(w *mpi.World) error { return w.Allreduce(mpi.InPlace, make([]byte, 800), mpi.Int64, mpi.Sum) },
		"allgather": func(w *mpi.World) error { return w.Allgather(make([]byte, 8), make([]byte, 8*w.Size())) },
		"alltoall":  func(w *mpi.World) error { return w.Alltoall(make([]byte, 8*w.Size()), make([]byte, 8*w.Size())) },
		"iallreduce": func(w *mpi.World) error {
			r, err := w.Iallreduce(mpi.InPlace, make([]byte, 800), mpi.Int64, mpi.Sum)
			if err != nil {
				return err
			}
			return must.Err(r.Wait())
		},
		"persistent alltoall": func(w *mpi.World) error {
			r, err := w.AlltoallInit(make([]byte, 8*w.Size()), make([]byte, 8*w.Size()))
			if err != nil {
				return err
			}
			if err := r.Start(); err != nil {
				return err
			}
			return must.Err(r.Wait())
		},
		"scatter": func(w *mpi.World) error { return w.Scatter(nil, make([]byte, 8), 1) },
		"reduce scatter": func(w *mpi.World) error {
			return w.ReduceScatterBlock(make([]byte, 8*w.Size()), make([]byte, 8), mpi.Int64, mpi.Sum)
		},
		"dup":    func(w *mpi.World) error { return must.Err(w.Dup()) },
		"split":  func(w *mpi.World) error { return must.Err(w.Split(0, 0)) },
		"window": func(w *mpi.World) error { return must.Err(w.WinAllocate(8)) },
		"end":    func(*mpi.World) error { return nil },
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			for configuration, o := range configurations() {
				for i, concurrent := range []bool{false, true, false, false, false} { // with other algorithms
					o.Collectives = algorithmChoices(t)[max(0, i-1)]
					switch i {
					case 0:
						o.Collectives = coll.Choices{} // the defaults
					case 4:
						must.Do(t, o.Collectives.UnmarshalText([]byte("bcast=multicast,barrier=multicast")))
					}
					f := newFabric(t, 4, 3, concurrent)
					errs := f.run(o, func(w *mpi.World) error {
						if err := w.Barrier(); err != nil {
							return err
						}
						if w.Rank() == 1 {
							f.kill(1)
							w.Compute(time.Hour)
						}
						err := call(w)
						if name != "end" && !errors.Is(err, mpi.ErrPeerLost) {
							return fmt.Errorf("the call returns %v", err)
						}
						if err := w.Send(nil, 1, 1); err != nil && !errors.Is(err, mpi.ErrPeerLost) {
							return err
						}
						return err
					})
					for i, err := range errs {
						if i == 1 && err != errKilled || i != 1 && !errors.Is(err, mpi.ErrPeerLost) {
							t.Errorf("%s, concurrent %v: rank %d ends with %v", configuration, concurrent, i, err)
						}
					}
					if !concurrent && f.now > time.Second {
						t.Errorf("%s: the ranks ended after %v", configuration, f.now)
					}
				}
			}
		})
	}
}

// Communicators without the lost rank keep working, with receives from AnySource and collectives.
func TestCommsWithoutLostRankContinue(t *testing.T) {
	for name, o := range configurations() {
		t.Run(name, func(t *testing.T) {
			f := newFabric(t, 4, 3, false)
			errs := f.run(o, func(w *mpi.World) error {
				color := 0
				if w.Rank() == 3 {
					color = mpi.Undefined
				}
				c, err := w.Split(color, 0)
				if err != nil {
					return err
				}
				if w.Rank() == 3 {
					if _, err := w.Recv(nil, 0, 9); err != nil {
						return err
					}
					f.kill(3)
					w.Compute(time.Hour)
				}
				if err := c.Barrier(); err != nil {
					return err
				}
				if w.Rank() == 0 {
					if err := w.Send(nil, 3, 9); err != nil {
						return err
					}
				}
				if _, err := w.Recv(nil, 3, 0); !errors.Is(err, mpi.ErrPeerLost) {
					return fmt.Errorf("a receive from the lost rank: %v", err)
				}
				right := (c.Rank() + 1) % 3
				for _, n := range sizes {
					buf := make([]byte, n)
					st, err := c.Sendrecv(testMessage(c.Rank(), n), right, 1, buf, mpi.AnySource, mpi.AnyTag)
					if err = errors.Join(err, checkMessage(buf, st, mpi.Status{(c.Rank() + 2) % 3, 1, n, false}, (c.Rank()+2)%3)); err != nil {
						return err
					}
					if err := c.Barrier(); err != nil {
						return err
					}
				}
				if _, err := w.Recv(nil, mpi.AnySource, 0); !errors.Is(err, mpi.ErrPeerLost) {
					return fmt.Errorf("a receive from AnySource of a communicator with a lost rank: %v", err)
				}
				return nil
			})
			for i, err := range errs {
				if i < 3 && (!errors.Is(err, mpi.ErrPeerLost) || !strings.Contains(err.Error(), "not all ranks can be reached")) {
					t.Errorf("rank %d ends with %v", i, err)
				}
			}
		})
	}
}

func TestCutLinkFailsOnlyItsTwoRanks(t *testing.T) {
	for name, o := range configurations() {
		f := newFabric(t, 3, 3, false)
		errs := f.run(o, func(w *mpi.World) error {
			if err := w.Barrier(); err != nil {
				return err
			}
			if w.Rank() == 0 {
				f.cut(0, 1)
			}
			if w.Rank() == 2 {
				for from := range 2 {
					if _, err := w.Recv(nil, from, 1); err != nil {
						return err
					}
				}
				return nil
			}
			if _, err := w.Recv(nil, 1-w.Rank(), 0); !errors.Is(err, mpi.ErrPeerLost) {
				return fmt.Errorf("a receive over the cut link: %v", err)
			}
			return w.Send(nil, 2, 1)
		})
		for i, err := range errs { // the programs succeed, but the final barrier fails
			if !errors.Is(err, mpi.ErrPeerLost) {
				t.Errorf("%s: rank %d ends with %v", name, i, err)
			}
		}
		if f.now > time.Second {
			t.Errorf("%s: the ranks ended after %v", name, f.now)
		}
	}
}
