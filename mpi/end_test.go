package mpi_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/transport"
)

func TestUnreceivedMessagesDoNotBlockFinalize(t *testing.T) {
	for name, o := range configurations() {
		t.Run(name, func(t *testing.T) {
			f := newFabric(t, 3, 5, false)
			var reqs [3]*mpi.Request
			var worlds [3]*mpi.World
			o.OnFinalize = func(rank int, s mpi.Stats) {
				if s.NeverReceived != uint64(2*len(sizes)) {
					t.Errorf("rank %d: %d messages were never received", rank, s.NeverReceived)
				}
			}
			f.succeed(o, func(w *mpi.World) error {
				worlds[w.Rank()] = w
				for _, n := range sizes {
					must.Get(w.Isend(testMessage(1, n), (w.Rank()+1)%3, 1))(t)
					must.Get(w.Issend(testMessage(1, n), (w.Rank()+2)%3, 2))(t)
				}
				reqs[w.Rank()] = must.Get(w.Irecv(make([]byte, 5), mpi.AnySource, 99))(t)
				if w.Rank() != 1 { // rank 1 does not call it
					must.Get(w.Ibarrier())(t)
				}
				return nil
			})
			if err := worlds[0].Send(nil, 0, 0); !errors.Is(err, mpi.ErrFinalized) {
				t.Errorf("a send after Finalize: %v", err)
			}
			if _, err := mpi.WaitAll(reqs[:]); !errors.Is(err, mpi.ErrFinalized) {
				t.Errorf("WaitAll after Finalize: %v", err)
			}
			if _, _, err := reqs[1].Test(); !errors.Is(err, mpi.ErrFinalized) {
				t.Errorf("Test after Finalize: %v", err)
			}
		})
	}
}

func TestPanicErrorNamesRank(t *testing.T) {
	for _, concurrent := range []bool{false, true} {
		f := newFabric(t, 3, 5, concurrent)
		errs := f.run(mpi.Options{}, func(w *mpi.World) error {
			if w.Rank() == 1 {
				panic("test panic")
			}
			return w.Barrier()
		})
		if errs[1] == nil || !strings.Contains(errs[1].Error(), "rank 1 of 3") || !strings.Contains(errs[1].Error(), "test panic") {
			t.Errorf("rank 1 ends with %v", errs[1])
		}
		for _, i := range []int{0, 2} {
			if !errors.Is(errs[i], mpi.ErrPeerLost) {
				t.Errorf("rank %d ends with %v", i, errs[i])
			}
		}
	}
}

func TestProgramErrorIsReturned(t *testing.T) {
	f := newFabric(t, 2, 5, false)
	programErr := errors.New("program failed")
	errs := f.run(mpi.Options{}, func(w *mpi.World) error {
		if w.Rank() == 0 {
			return programErr
		}
		return nil // the final barrier fails
	})
	if !errors.Is(errs[0], programErr) || !errors.Is(errs[1], mpi.ErrPeerLost) {
		t.Errorf("ranks end with %v", errs)
	}
}

// A rank that waits in the final barrier can be killed.
func TestRankKilledInFinalize(t *testing.T) {
	for _, mode := range []mpi.ProgressMode{mpi.Polling, mpi.Background} {
		for _, concurrent := range []bool{false, true} {
			f := newFabric(t, 3, 5, concurrent)
			errs := f.run(mpi.Options{Progress: mode}, func(w *mpi.World) error {
				if w.Rank() == 1 {
					w.Compute(100 * time.Microsecond) // until rank 0 is in the final barrier
					f.kill(0)
				}
				return nil
			})
			if errs[0] != errKilled || !errors.Is(errs[1], mpi.ErrPeerLost) || !errors.Is(errs[2], mpi.ErrPeerLost) {
				t.Errorf("%v, concurrent %v: ranks end with %v", mode, concurrent, errs)
			}
		}
	}
}

func TestRunFailsWhenCarrierFailsToOpen(t *testing.T) {
	if err := mpi.Run(&transport.Env{Size: 1}, mpi.Options{}, nil); err == nil { // without a NIC
		t.Error("Run succeeded without a NIC")
	}
	openErr := errors.New("no NIC")
	o := mpi.Options{Open: func(*transport.Env, mpi.Upper) (mpi.Carrier, error) { return nil, openErr }}
	if err := mpi.Run(&transport.Env{Size: 1}, o, nil); !errors.Is(err, openErr) {
		t.Error(err)
	}
}

// TestMain also serves as the program that TestMainExitCode runs, since Main exits the process.
func TestMain(m *testing.M) {
	switch os.Getenv("MPI_TEST_MAIN") {
	case "none":
		mpi.Main(func(*mpi.World) error { return nil })
	case "code":
		mpi.RegisterLauncher("a test", func(func(*transport.Env, mpi.Options) error) error { return fmt.Errorf("all: %w", exitError{}) })
		mpi.Main(nil)
	case "good", "bad":
		bad := os.Getenv("MPI_TEST_MAIN") == "bad"
		mpi.RegisterLauncher("a test", func(rank func(*transport.Env, mpi.Options) error) error {
			if bad {
				return fmt.Errorf("launch failed")
			}
			f := newFabric(nil, 1, 1, true)
			done := make(chan struct{})
			defer close(done)
			go f.runEvents(done)
			return rank(f.newEnv(0, &proc{f: f}), mpi.Options{Open: f.open})
		})
		mpi.Main(func(w *mpi.World) error { return w.Barrier() })
	}
	os.Exit(m.Run())
}

// exitError is an error that is already reported and has an exit code.
type exitError struct{}

func (exitError) Error() string  { return "already reported" }
func (exitError) Reported() bool { return true }
func (exitError) ExitCode() int  { return 7 }

func TestMainExitCode(t *testing.T) {
	for _, c := range []struct {
		mode, output string
		code         int
	}{{"code", "", 7}, {"none", "lab/mpihost", 1}, {"bad", "launch failed", 1}, {"good", "", 0}} {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "MPI_TEST_MAIN="+c.mode)
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(string(out), c.output) || strings.Contains(string(out), "already reported") {
			t.Errorf("%s: code %d, %v: %s", c.mode, code, err, out)
		}
	}
	defer func() {
		if v := recover(); v == nil || !strings.Contains(fmt.Sprint(v), "one") {
			t.Errorf("a second launcher: %v", v)
		}
	}()
	mpi.RegisterLauncher("one", func(func(*transport.Env, mpi.Options) error) error { return nil })
	mpi.RegisterLauncher("two", nil)
}
