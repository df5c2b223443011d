package launch_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/launch"
)

// roleEnv makes the test binary run a role instead of the tests.
const roleEnv = "LAUNCH_TEST_ROLE"

// noRaceSleep disables the race detector's sleep of a second at exit.
const noRaceSleep = "GORACE=atexit_sleep_ms=0"

func TestMain(m *testing.M) {
	if name := os.Getenv(roleEnv); name != "" {
		role, ok := roles[name]
		if !ok {
			panic("no role " + name)
		}
		role()
		return
	}
	testutil.SetParallel(16)
	os.Exit(m.Run())
}

// roleSpec returns the spec of a rank with a role.
func roleSpec(rank int, role string, args ...string) launch.Spec {
	return launch.Spec{
		Rank: rank, Host: "host" + string(rune('a'+rank%26)),
		Cmd: launch.Command{Path: os.Args[0], Args: args, Env: append(os.Environ(), roleEnv+"="+role, noRaceSleep)},
	}
}

// roleSpecs returns the specs of a group; roles are by rank.
func roleSpecs(roles ...string) []launch.Spec {
	specs := make([]launch.Spec, len(roles))
	for i, r := range roles {
		specs[i] = roleSpec(i, r)
	}
	return specs
}

// testOptions has long timeouts, for busy machines. Tests of timeouts set shorter ones.
func testOptions(change ...func(*launch.Options)) launch.Options {
	o := launch.Options{
		Heartbeat: 50 * time.Millisecond, JoinTimeout: time.Minute, HangTimeout: 20 * time.Second, TermGrace: 20 * time.Second, DumpTimeout: 20 * time.Second,
	}
	for _, c := range change {
		c(&o)
	}
	return o
}

// run starts a group and waits until it has ended.
func run(t *testing.T, specs []launch.Spec, o launch.Options) ([]launch.Outcome, error) {
	t.Helper()
	g := start(t.Context(), t, specs, o)
	return wait(t, g)
}

func start(ctx context.Context, t *testing.T, specs []launch.Spec, o launch.Options) *launch.Group {
	t.Helper()
	checkNoLeaks(t)
	g := must.Get(launch.Start(ctx, specs, o))(t)
	t.Cleanup(func() {
		g.Stop(errors.New("the test is over"))
		<-g.Done()
	})
	return g
}

// wait waits for a group. It fails the test, with state dumps, if it does not end.
func wait(t *testing.T, g *launch.Group) ([]launch.Outcome, error) {
	t.Helper()
	select {
	case <-g.Done():
	case <-time.After(2 * time.Minute):
		t.Fatalf("the group has not ended: %v", g.Dump(t.Context()))
	}
	outcomes, err := g.Wait()
	for _, o := range outcomes {
		t.Logf("rank %d: %s, exit %d, signal %q: %s", o.Rank, o.State, o.ExitCode, o.Signal, o.Error)
	}
	return outcomes, err
}

// wantStates checks the states of ranks.
func wantStates(t *testing.T, outcomes []launch.Outcome, states ...launch.State) {
	t.Helper()
	for i, s := range states {
		if o := outcomes[i]; o.State != s {
			t.Errorf("rank %d %s (%s), want %s; stderr: %s", i, o.State, o.Error, s, o.Stderr.Tail)
		}
	}
}

// wantErrorContaining checks that an error contains all texts.
func wantErrorContaining(t *testing.T, err error, texts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one that contains %q", texts)
	}
	for _, s := range texts {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("error %q does not contain %q", err, s)
		}
	}
}

// checkingLeaksOnce is set while parallel tests run: leaks are checked after all of them.
var checkingLeaksOnce bool

// runParallel runs tests in parallel.
func runParallel(t *testing.T, tests map[string]func(*testing.T)) {
	checkNoLeaks(t)
	checkingLeaksOnce = true
	t.Cleanup(func() { checkingLeaksOnce = false })
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

// checkNoLeaks checks, at the end of the test, that it left no goroutine, open file or
// child process.
func checkNoLeaks(t *testing.T) {
	t.Helper()
	if checkingLeaksOnce {
		return
	}
	goroutines, files := runtime.NumGoroutine(), openFiles(t)
	t.Cleanup(func() {
		var now int
		var open []string
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			now, open = runtime.NumGoroutine(), openFiles(t)
			if now <= goroutines && len(open) <= len(files) {
				break
			}
		}
		if now > goroutines {
			b := make([]byte, 64<<10)
			t.Errorf("%d goroutines, %d before:\n%s", now, goroutines, b[:runtime.Stack(b, true)])
		}
		if len(open) > len(files) {
			t.Errorf("descriptors left open: %q, before: %q", open, files)
		}
		if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); !errors.Is(err, syscall.ECHILD) {
			t.Errorf("child process %d remains (%v)", pid, err)
		}
	})
}

func openFiles(t *testing.T) []string {
	t.Helper()
	names := must.Get(filepath.Glob("/proc/self/fd/*"))(t)
	var open []string
	for _, n := range names {
		if to, err := os.Readlink(n); err == nil {
			open = append(open, filepath.Base(n)+" "+to)
		}
	}
	slices.Sort(open)
	return open
}

type eventLog struct {
	mu  sync.Mutex
	all []launch.Event
}

func (r *eventLog) add(e launch.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, e)
}

func (r *eventLog) events(rank int, k launch.EventKind) []launch.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []launch.Event
	for _, e := range r.all {
		if e.Rank == rank && e.Kind == k {
			found = append(found, e)
		}
	}
	return found
}

// waitFor waits for an event of a kind whose text contains text.
func (r *eventLog) waitFor(t *testing.T, rank int, k launch.EventKind, text string) launch.Event {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		for _, e := range r.events(rank, k) {
			if strings.Contains(e.Text, text) {
				return e
			}
		}
	}
	t.Fatalf("rank %d: no event %v with %q", rank, k, text)
	return launch.Event{}
}

// waitKilled waits until processes have ended or are zombies.
func waitKilled(t *testing.T, pids ...int) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for _, pid := range pids {
		for isRunning(pid) {
			if time.Now().After(deadline) {
				t.Errorf("process %d still runs", pid)
				_ = syscall.Kill(pid, syscall.SIGKILL)
				break
			}
			time.Sleep(time.Millisecond)
		}
		// As PID 1 of a container, the test has to reap orphans.
		for time.Now().Before(deadline) {
			if reaped, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil); reaped != 0 || err != nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
}
