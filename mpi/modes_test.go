package mpi_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/window"
)

const eagerLimit = 64

// configurations are the options that every test program must work with.
func configurations() map[string]mpi.Options {
	all := make(map[string]mpi.Options)
	for _, protocol := range []p2p.Protocol{p2p.RGET, p2p.RPUT, p2p.Speculative} {
		for _, mode := range []mpi.ProgressMode{mpi.Polling, mpi.Background} {
			o := mpi.Options{Progress: mode, P2P: p2p.Config{Protocol: protocol, EagerLimit: eagerLimit}}
			o.P2P.Adaptive = mode == mpi.Background
			o.Window = window.Config{Chunk: 16, InFlight: 3}
			all[fmt.Sprintf("%v %v", protocol, mode)] = o
		}
	}
	return all
}

// inAllConfigurations runs a program in all configurations, with several seeds in virtual
// time and with goroutines in real time.
func inAllConfigurations(t *testing.T, size int, program func(*mpi.World) error) {
	t.Helper()
	runConfigurations(t, configurations(), size, program)
}

// inBothProgressModes is inAllConfigurations for programs that do not depend on the rendezvous
// protocol.
func inBothProgressModes(t *testing.T, size int, program func(*mpi.World) error) {
	t.Helper()
	all := configurations()
	runConfigurations(t, map[string]mpi.Options{"polling": all["rget polling"], "background": all["speculative background"]}, size, program)
}

func runConfigurations(t *testing.T, configurations map[string]mpi.Options, size int, program func(*mpi.World) error) {
	t.Helper()
	for name, o := range configurations {
		t.Run(name, func(t *testing.T) {
			seeds := uint64(3)
			if testing.Short() { // for the race detector: virtual time runs one task at a time
				seeds = 0
			}
			for seed := range seeds {
				f := newFabric(t, size, seed, false)
				f.lacksCredits, f.atomics = seed == 1, seed != 2
				f.succeed(o, program)
			}
			f := newFabric(t, size, 9, true)
			f.succeed(o, program)
		})
	}
}

// sizes are an empty message, two eager ones up to the limit, and two for rendezvous.
var sizes = []int{0, 7, eagerLimit, eagerLimit + 1, 1000}

// testMessage returns n bytes that depend on id.
func testMessage(id, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(id*37 + i*5 + i>>8)
	}
	return b
}

// checkMessage compares a received message and its status with the expected ones.
func checkMessage(got []byte, st mpi.Status, want mpi.Status, id int) error {
	if st != want || !bytes.Equal(got[:want.Count], testMessage(id, want.Count)) {
		return fmt.Errorf("got %+v with %x, want %+v with message %d", st, got[:min(len(got), 8)], want, id)
	}
	return nil
}

func TestReadySendWithoutReceiveIsCounted(t *testing.T) {
	f := newFabric(t, 2, 1, false)
	f.succeed(mpi.Options{}, func(w *mpi.World) error {
		if w.Rank() == 0 {
			return w.Rsend([]byte("x"), 1, 1)
		}
		must.Get(w.Probe(0, 1))(t)
		if n := w.Stats().P2P.NotReady; n != 1 {
			return fmt.Errorf("NotReady is %d, want 1", n)
		}
		buf := make([]byte, 1)
		return must.Err(w.Recv(buf, 0, 1))
	})
}
