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
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/process"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/verbs"
)

// rankCommand makes the test binary a rank, or all ranks of a simulation. The next argument is the
// name of its program.
const rankCommand = "test-rank"

// launchCommand makes the test binary run launcher.
const launchCommand = "test-launcher"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case ProcessCommand:
			code, err := ProcessMain()
			exit(code, err)
		case rankCommand:
			if os.Args[2] == "nothing" { // a program that does not join the job
				os.Exit(0)
			}
			exit(0, runRank(programs[os.Args[2]]))
		case ProxyCommand:
			code, err := ProxyMain()
			exit(code, err)
		case enterCommand:
			exit(0, enter(os.Args[2:]))
		case launchCommand:
			launcher()
		}
	}
	os.Exit(m.Run())
}

func exit(code int, err error) {
	if err != nil {
		var reported interface{ Reported() bool }
		if !errors.As(err, &reported) {
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

func runRank(program func(*transport.Env) error) error {
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

// programs are the programs of ranks by name.
var programs = map[string]func(*transport.Env) error{
	"exchange": func(e *transport.Env) error {
		return mpi.Run(e, mpi.Options{}, func(w *mpi.World) error {
			return w.Alltoall(make([]byte, 3000*e.Size), make([]byte, 3000*e.Size))
		})
	},
	"datagrams": func(e *transport.Env) error {
		return mpi.Run(e, mpi.Options{Carrier: carrier.Config{Design: carrier.UD}}, func(w *mpi.World) error {
			return w.Alltoall(make([]byte, 3000*e.Size), make([]byte, 3000*e.Size))
		})
	},
	"share": share,
	// In orphan, the last rank kills the process that has started it.
	"orphan": func(e *transport.Env) error {
		if e.Rank == e.Size-1 {
			_ = syscall.Kill(os.Getppid(), syscall.SIGKILL)
		}
		return must.Err(e.Control.Recv(e.Rank, verbs.Forever))
	},
	"folder": func(e *transport.Env) error {
		dir, err := os.Getwd()
		fmt.Printf("rank %d in %s\n", e.Rank, dir)
		return err
	},
	"hello": func(e *transport.Env) error {
		fmt.Printf("rank %d of %d on host %d: %s\n", e.Rank, e.Size, e.Nodes[e.Rank], e.NICs[0].Addr)
		return nil
	},
	// In fails one rank returns an error, and the others wait for a message from it.
	"fails": func(e *transport.Env) error {
		if e.Rank == 1 {
			return errors.New("test error")
		}
		_, err := e.Control.Recv(1, verbs.Forever)
		if errors.Is(err, transport.ErrGone) && e.Control.Gone(1) {
			fmt.Printf("rank %d: peer is gone\n", e.Rank)
			return nil
		}
		return err
	},
	"forever": func(e *transport.Env) error {
		fmt.Println("started")
		return must.Err(e.Control.Recv(e.Rank, verbs.Forever))
	},
	"abort": func(e *transport.Env) error {
		if e.Rank == 1 {
			e.Control.Abort(7, "enough")
			fmt.Println("continued")
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
		e.Go("second", func(p verbs.Proc) { done <- p.Now() })
		if end := <-done; began < 0 || end-began < 4*time.Millisecond {
			return fmt.Errorf("from %v to %v", began, end)
		}
		if _, err := e.Control.Recv(e.Rank, time.Millisecond); !errors.Is(err, verbs.ErrTimeout) {
			return fmt.Errorf("receive without a message: %v", err)
		}
		return nil
	},
}

// share makes the ranks of a host increment one counter in shared memory, separate for each host.
func share(e *transport.Env) error {
	for round := range 20 { // the first rank creates the segment
		mem, err := e.Shared.Segment(fmt.Sprint("counter ", round), 64<<10)
		if err != nil {
			return err
		}
		counter := (*atomic.Uint64)(unsafe.Pointer(&mem[len(mem)-8]))
		for range 1000 {
			counter.Add(1)
		}
		if err := e.Control.Barrier(time.Minute); err != nil {
			return err
		}
		local := 0
		for _, n := range e.Nodes {
			if n == e.Nodes[e.Rank] {
				local++
			}
		}
		if got := counter.Load(); got != uint64(1000*local) {
			return fmt.Errorf("round %d: the counter is %d, incremented by %d ranks", round, got, local)
		}
		if _, err := e.Shared.Segment(fmt.Sprint("counter ", round), 4096); !errors.Is(err, verbs.ErrInvalid) {
			return fmt.Errorf("another size: %v", err)
		}
	}
	return nil
}

// launcher runs a job described by the arguments: tier, program, ranks, ranks per host, and flags.
func launcher() {
	r := configOf(os.Args[3], 0, 0)
	_, _ = fmt.Sscan(os.Args[4], &r.Ranks)
	_, _ = fmt.Sscan(os.Args[5], &r.PerHost)
	flags := strings.Join(os.Args[6:], " ")
	if strings.Contains(flags, "limit") {
		r.Limit = time.Second
	}
	r.Bind = strings.Contains(flags, "bind")
	r.Label, r.KeepGoing = strings.Contains(flags, "label"), strings.Contains(flags, "keep-going")
	run := InNamespaces
	switch os.Args[2] {
	case "sim":
		run = InSimulation
	case "hosts":
		run = launchOnHosts
	}
	result, err := run(context.Background(), r)
	if err != nil {
		fmt.Fprintln(os.Stderr, "launcher:", err)
		os.Exit(99)
	}
	os.Exit(result.Code)
}

func configOf(program string, ranks, perHost int) Config {
	self, err := filepath.EvalSymlinks("/proc/self/exe")
	if err != nil {
		panic(err)
	}
	return Config{Job: mpihost.Job{Ranks: ranks, PerHost: perHost}, Args: []string{self, rankCommand, program}}
}

// runLauncher runs launcher in a child process.
func runLauncher(t *testing.T, stdin string, args ...string) (code int, out string) {
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
