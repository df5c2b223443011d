package mpirun

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/process"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/verbs"
)

// rankCommand has the test binary be a rank, or a simulated world of them; the next
// argument says what each does.
const rankCommand = "test-rank"

// launchCommand makes the test binary call InNamespaces in a separate process: see
// launcher.
const launchCommand = "test-launcher"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case ProcessCommand:
			code, err := ProcessMain()
			end(code, err)
		case rankCommand:
			if os.Args[2] == "nothing" { // a program that is none of ranks
				os.Exit(0)
			}
			end(0, beRank(programs[os.Args[2]]))
		case launchCommand:
			launcher()
		}
	}
	os.Exit(m.Run())
}

func end(code int, err error) {
	if err != nil {
		var said interface{ Reported() bool }
		if !errors.As(err, &said) {
			fmt.Fprintln(os.Stderr, err)
		}
		code = 1
		var abort interface{ ExitCode() int }
		if errors.As(err, &abort) {
			code = abort.ExitCode()
		}
	}
	os.Exit(code)
}

func beRank(program func(*transport.Env) error) error {
	p, err := mpihost.Join()
	if err != nil {
		return err
	}
	return p.Run(func(e *transport.Env) error {
		err := program(e)
		p.Report(e.Rank, map[string]any{"rank": e.Rank, "options": string(p.Job().Options)})
		return err
	})
}

// programs are what ranks do in these tests.
var programs = map[string]func(*transport.Env) error{
	"exchange": func(e *transport.Env) error {
		return mpi.Run(e, mpi.Options{}, func(w *mpi.World) error {
			return w.Alltoall(make([]byte, 3000*e.Size), make([]byte, 3000*e.Size))
		})
	},
	"share": share,
	"hello": func(e *transport.Env) error {
		fmt.Printf("rank %d of %d on host %d: %s\n", e.Rank, e.Size, e.Nodes[e.Rank], e.NICs[0].Addr)
		return nil
	},
	// fails: one rank does, and the others wait for it.
	"fails": func(e *transport.Env) error {
		if e.Rank == 1 {
			return errors.New("no more paper")
		}
		_, err := e.Control.Recv(1, verbs.Forever)
		if errors.Is(err, transport.ErrGone) && e.Control.Gone(1) {
			fmt.Printf("rank %d: it is gone\n", e.Rank)
			return nil
		}
		return err
	},
	"forever": func(e *transport.Env) error {
		fmt.Println("begun")
		return must.Err(e.Control.Recv(e.Rank, verbs.Forever))
	},
	"abort": func(e *transport.Env) error {
		if e.Rank == 1 {
			e.Control.Abort(7, "enough")
			fmt.Println("went on")
		}
		return must.Err(e.Control.Recv(e.Rank, verbs.Forever))
	},
	"dies": func(e *transport.Env) error {
		if e.Rank == 1 {
			panic("a bug")
		}
		return must.Err(e.Control.Recv(e.Rank, verbs.Forever))
	},
	"reads": func(e *transport.Env) error {
		if e.Rank > 0 {
			return nil
		}
		var text bytes.Buffer
		_, err := text.ReadFrom(os.Stdin)
		fmt.Printf("read %s\n", text.String())
		return err
	},
	"bound": func(e *transport.Env) error {
		all, err := process.UsableCPUs()
		fmt.Printf("rank %d has %d\n", e.Rank, len(all))
		return err
	},
	"times": func(e *transport.Env) error {
		began := e.Proc.Now()
		e.Proc.Sleep(2 * time.Millisecond)
		e.Proc.Compute(2 * time.Millisecond)
		done := make(chan time.Duration, 1)
		e.Go("beside", func(p verbs.Proc) { done <- p.Now() })
		if end := <-done; began < 0 || end-began < 4*time.Millisecond {
			return fmt.Errorf("from %v to %v", began, end)
		}
		if _, err := e.Control.Recv(e.Rank, time.Millisecond); !errors.Is(err, verbs.ErrTimeout) {
			return fmt.Errorf("nothing came: %v", err)
		}
		return nil
	},
}

// share has the ranks of a host count in one word, and see no other host's.
func share(e *transport.Env) error {
	for round := range 20 { // the first rank creates the segment
		mem, err := e.Shared.Segment(fmt.Sprint("counter ", round), 64<<10)
		if err != nil {
			return err
		}
		word := (*atomic.Uint64)(unsafe.Pointer(&mem[len(mem)-8]))
		for range 1000 {
			word.Add(1)
		}
		if err := e.Control.Barrier(time.Minute); err != nil {
			return err
		}
		mates := 0
		for _, n := range e.Nodes {
			if n == e.Nodes[e.Rank] {
				mates++
			}
		}
		if got := word.Load(); got != uint64(1000*mates) {
			return fmt.Errorf("round %d: the word is %d, and %d ranks counted", round, got, mates)
		}
		if _, err := e.Shared.Segment(fmt.Sprint("counter ", round), 4096); !errors.Is(err, verbs.ErrInvalid) {
			return fmt.Errorf("another size: %v", err)
		}
	}
	return nil
}

// launcher is a program that launches, with a Run of few words: tier, program, ranks,
// ranks a host, and flags.
func launcher() {
	r := runOf(os.Args[3], 0, 0)
	_, _ = fmt.Sscan(os.Args[4], &r.Ranks)
	_, _ = fmt.Sscan(os.Args[5], &r.PerHost)
	flags := strings.Join(os.Args[6:], " ")
	if strings.Contains(flags, "limit") {
		r.Limit = time.Second
	}
	r.Bind = strings.Contains(flags, "bind")
	r.Label, r.KeepGoing = strings.Contains(flags, "label"), strings.Contains(flags, "keep-going")
	run := InNamespaces
	if os.Args[2] == "sim" {
		run = InSimulation
	}
	result, err := run(context.Background(), r)
	if err != nil {
		fmt.Fprintln(os.Stderr, "launcher:", err)
		os.Exit(99)
	}
	os.Exit(result.Code)
}

func runOf(program string, ranks, perHost int) Config {
	self, err := filepath.EvalSymlinks("/proc/self/exe")
	if err != nil {
		panic(err)
	}
	return Config{Job: mpihost.Job{Ranks: ranks, PerHost: perHost}, Args: []string{self, rankCommand, program}}
}

// launched runs launcher as a shell would.
func launched(t *testing.T, stdin string, args ...string) (code int, out string) {
	t.Helper()
	self := must.Get(os.Executable())(t)
	cmd := exec.Command(self, append([]string{launchCommand}, args...)...)
	var b bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &b, &b
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), b.String()
}

func needNamespaces(t *testing.T) {
	t.Helper()
	if err := netns.Available(); err != nil {
		t.Skip(err)
	}
}
