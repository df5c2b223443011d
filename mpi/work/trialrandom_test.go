package work_test

import (
	"errors"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/mpi/work"
)

// The files trial*_test.go test the runtime as a whole with these workloads: with random
// configurations, as processes in namespaces, and while ranks, cables and rails fail. Data
// is never wrong, ranks that can continue do, and the others soon return an error.
//
//	go test ./mpi/work -run Random -seeds 1000
//	go test ./mpi/work -run 'Namespaces|Phase' -everywhere
//
// A failure names the command that repeats it.

// Tests of all configurations run a subset, unless a flag selects all or a part.
var part = testutil.PartFlag()

func subsetOnly() bool { return !*everywhere && !part.Given() }

var everywhere = flag.Bool("everywhere", false, "run all configurations instead of a subset")

var (
	seeds = flag.Uint64("seeds", 0, "number of seeds of the random tests (default: a few seconds' worth)")
	seed  = flag.Uint64("seed", 1, "the first seed")
)

// A world counts as hung after the simulated time limit, or after this many events, which
// take two to three minutes of real time. The slowest trials, with RoCE on links that reorder
// and lose packets, need 40 million.
const (
	limit  = 20 * time.Minute
	events = 200_000_000
)

// each calls try with the usual number of seeds, or as the flags say. It reports errors of try
// with the command that repeats them.
func each(t *testing.T, usual uint64, try func(seed uint64) error) {
	t.Helper()
	n := *seeds
	switch {
	case n == 0 && testing.Short():
		n = max(1, usual/4)
	case n == 0:
		n = usual
	}
	for s := *seed; s < *seed+n; s++ {
		began := time.Now()
		if err := try(s); err != nil {
			t.Errorf("seed %d: %v\nTo repeat it:\n\n    go test ./mpi/work -run '^%s$' -seeds 1 -seed %d\n", s, err, t.Name(), s)
		}
		if d := time.Since(began); d > 5*time.Second {
			t.Logf("seed %d takes %v", s, d)
		}
	}
}

// Workloads verify with random options of the runtime and impairments of the network.
func TestRandomConfigurationsVerify(t *testing.T) {
	t.Parallel()
	each(t, 3, func(seed uint64) error { return draw(chooserOf(seed), seed).verify() })
}

// FuzzTrial draws the trial from fuzzed bytes.
func FuzzTrial(f *testing.F) {
	f.Add(uint64(1), []byte{})
	for seed := range uint64(4) {
		c, b := chooserOf(seed), make([]byte, 64)
		for i := range b {
			b[i] = byte(c.IntN(256))
		}
		f.Add(seed, b)
	}
	f.Fuzz(func(t *testing.T, seed uint64, b []byte) {
		if err := draw(&byteChooser{b}, seed).verify(); err != nil {
			t.Error(err)
		}
	})
}

// verify runs the trial, and checks that all ranks verified and have the same result.
func (t *trial) verify() error {
	var first work.Result
	var wrong error
	ended := 0
	out, err := t.run(func(rank int, _ time.Duration, r work.Result, err error) {
		ended++
		switch {
		case err != nil:
		case r.Checks == 0 || r.Verified == 0:
			wrong = errors.Join(wrong, fmt.Errorf("rank %d has checked nothing: %+v", rank, r))
		case first.Workload == "":
			first = r
		case fmt.Sprint(r) != fmt.Sprint(first):
			wrong = errors.Join(wrong, fmt.Errorf("rank %d has another result: %+v, not %+v", rank, r, first))
		}
	})
	if err == nil && ended != t.fabric.Ranks {
		wrong = errors.Join(wrong, fmt.Errorf("%d ranks have ended", ended))
	}
	if err = errors.Join(err, wrong); err != nil {
		return fmt.Errorf("%v\n%w (after %v, %d events)", t, err, out.Elapsed, out.Events)
	}
	return nil
}
