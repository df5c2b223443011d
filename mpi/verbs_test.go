package mpi_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/transport"
)

// onEmulatedNICs runs a program over emulated NICs, with all designs and both progress
// modes.
func onEmulatedNICs(t *testing.T, ranks int, program func(*mpi.World) error) {
	t.Helper()
	skipUnderRaceDetector(t)
	for _, provider := range []string{"softroce", "softiwarp", "dgiwarp"} {
		for i, design := range carrier.Designs() {
			if provider == "softiwarp" && (design == carrier.UD || design == carrier.Hybrid) {
				continue // it has no datagrams
			}
			o := mpi.Options{
				Carrier: carrier.Config{Design: design},
				P2P:     p2p.Config{Protocol: []p2p.Protocol{p2p.RGET, p2p.RPUT, p2p.Speculative}[i%3]},
			}
			if i%2 == 1 {
				o.Progress = mpi.Background
			}
			t.Run(fmt.Sprintf("%s %s %v %v", provider, design, o.P2P.Protocol, o.Progress), func(t *testing.T) {
				f := mpihost.Fabric{Ranks: ranks, PerHost: 2, Provider: provider, Seed: uint64(i), Limit: time.Second}
				if _, err := mpihost.InWorld(f, func(e *transport.Env) error { return mpi.Run(e, o, program) }); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// With every NIC provider, each call that needs a killed or disconnected rank fails in
// time.
func TestPeerLossOverNICs(t *testing.T) {
	waits := map[string]func(*mpi.World, *mpi.Win) error{
		"receive": func(w *mpi.World, _ *mpi.Win) error {
			_, err := w.Recv(nil, 1, 1)
			return err
		},
		"probe": func(w *mpi.World, _ *mpi.Win) error {
			_, err := w.Probe(1, 1)
			return err
		},
		"receive from any source": func(w *mpi.World, _ *mpi.Win) error {
			_, err := w.Recv(nil, mpi.AnySource, 1)
			return err
		},
		"start":   func(_ *mpi.World, win *mpi.Win) error { return errors.Join(win.Start([]int{1}, 0), win.Complete()) },
		"wait":    func(_ *mpi.World, win *mpi.Win) error { return errors.Join(win.Post([]int{1}, 0), win.Wait()) },
		"send":    func(w *mpi.World, _ *mpi.Win) error { return w.Ssend(make([]byte, 100_000), 1, 1) },
		"barrier": func(w *mpi.World, _ *mpi.Win) error { return w.Barrier() },
		"fence":   func(_ *mpi.World, win *mpi.Win) error { return win.Fence(0) },
		"lock": func(_ *mpi.World, win *mpi.Win) error {
			for {
				if err := win.Lock(mpi.Exclusive, 1, 0); err != nil {
					return err
				}
				if err := errors.Join(win.Put(make([]byte, 64), 1, 0), win.Unlock(1)); err != nil {
					return err
				}
			}
		},
	}
	skipUnderRaceDetector(t)
	for _, provider := range []string{"softroce", "softiwarp", "dgiwarp"} {
		for name, wait := range waits {
			for _, mode := range []mpi.ProgressMode{mpi.Polling, mpi.Background} {
				for _, how := range []string{"killed", "cut off"} {
					t.Run(fmt.Sprintf("%s %s %v %s", provider, name, mode, how), func(t *testing.T) {
						f := mpihost.Fabric{Ranks: 3, Provider: provider, Limit: 5 * time.Minute}
						f.Script = func(w *mpihost.World) {
							w.At(time.Millisecond, func() {
								if how == "killed" {
									w.Kill(1)
								} else {
									w.LinkDown(1, -1)
								}
							})
						}
						out, err := mpihost.InWorld(f, func(e *transport.Env) error {
							return mpi.Run(e, mpi.Options{Progress: mode}, func(w *mpi.World) error {
								win, err := w.WinAllocate(64)
								if err != nil {
									return err
								}
								if w.Rank() == 1 {
									w.Compute(10 * time.Millisecond)
									_, err := w.Recv(nil, 0, 99)
									return err
								}
								return wait(w, win)
							})
						})
						for i, r := range out.Ranks {
							if i == 1 && how == "killed" {
								continue
							}
							if !errors.Is(r.Err, mpi.ErrPeerLost) || r.Ended > 2*time.Minute {
								t.Errorf("rank %d ends after %v with %v; all: %v", i, r.Ended, r.Err, err)
							}
						}
					})
				}
			}
		}
	}
}

func fill(id, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(id + i*7)
	}
	return b
}

func TestMessagesOverNICs(t *testing.T) {
	onEmulatedNICs(t, 4, func(w *mpi.World) error {
		for _, n := range []int{0, 8, 3000, 5000, 100_000} {
			var reqs []*mpi.Request
			bufs := make([][]byte, w.Size())
			for r := range w.Size() {
				bufs[r] = make([]byte, n)
				q := must.Get(w.Irecv(bufs[r], r, 1))(t)
				s := must.Get(w.Issend(fill(w.Rank(), n), r, 1))(t)
				reqs = append(reqs, q, s)
			}
			must.Get(mpi.WaitAll(reqs))(t)
			for r := range bufs {
				if !bytes.Equal(bufs[r], fill(r, n)) {
					return fmt.Errorf("%d bytes of rank %d are wrong", n, r)
				}
			}
			must.Do(t, w.Barrier())
		}
		return nil
	})
}

func TestWindowsOverNICs(t *testing.T) {
	onEmulatedNICs(t, 4, func(w *mpi.World) error {
		win := must.Get(w.WinAllocate(4096))(t)
		must.Do(t, win.Fence(0))
		next := (w.Rank() + 1) % w.Size()
		must.Do(t, win.Put(fill(w.Rank(), 2000), next, 1000))
		for r := range w.Size() {
			for i := range 8 {
				one := binary.LittleEndian.AppendUint32(nil, uint32(w.Rank()+1))
				must.Do(t, win.Accumulate(one, r, 4*i, mpi.Uint32, mpi.Sum))
			}
		}
		must.Do(t, win.Fence(0))
		before := (w.Rank() + w.Size() - 1) % w.Size()
		if !bytes.Equal(win.Memory()[1000:3000], fill(before, 2000)) {
			return errors.New("wrong data after put")
		}
		for i := range 8 {
			if v := binary.LittleEndian.Uint32(win.Memory()[4*i:]); v != 10 {
				return fmt.Errorf("element %d is %d", i, v)
			}
		}
		must.Do(t, win.Fence(mpi.NoSucceed))
		for range 3 {
			must.Do(t, win.Lock(mpi.Exclusive, 0, 0))
			b := make([]byte, 8)
			must.Do(t, errors.Join(win.Get(b, 0, 4000), win.Flush(0)))
			binary.LittleEndian.PutUint64(b, binary.LittleEndian.Uint64(b)+1)
			must.Do(t, errors.Join(win.Put(b, 0, 4000), win.Unlock(0)))
		}
		must.Do(t, w.Barrier())
		if v := binary.LittleEndian.Uint64(win.Memory()[4000:]); w.Rank() == 0 && v != 12 {
			return fmt.Errorf("%d had the lock", v)
		}
		return win.Free()
	})
}

// skipUnderRaceDetector skips tests in a simulated world, which runs one task at a time
// and cannot have races.
func skipUnderRaceDetector(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("a long simulation: -short is for the race detector, and a simulation runs one goroutine at a time")
	}
}
