package launch_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/launch"
)

// A rank that computes forever answers heartbeats. The caller's timeout stops it.
func busyRankIsNotHung(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var r eventLog
	g := start(ctx, t, roleSpecs("spin"), testOptions(func(o *launch.Options) { o.OnEvent, o.HangTimeout = r.add, hangTimeout }))
	r.waitFor(t, 0, launch.Marked, "ready")
	time.Sleep(afterHang)
	cancel(context.DeadlineExceeded) // as a timeout that starts when the rank is ready
	outcomes, err := wait(t, g)
	wantStates(t, outcomes, launch.Stopped)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want the context's", err)
	}
	if outcomes[0].StateDump != "computes" {
		t.Errorf("state dump %q", outcomes[0].StateDump)
	}
}

func cancelKillsRanksAndTheirChildren(t *testing.T) {
	var r eventLog
	why := errors.New("interrupted by the user")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	g := start(ctx, t, roleSpecs("children", "sleep", "commands"), testOptions(func(o *launch.Options) {
		o.OnEvent, o.TermGrace = r.add, 500*time.Millisecond
	}))
	pids := pidsIn(t, r.waitFor(t, 0, launch.Marked, "children").Text)
	r.waitFor(t, 1, launch.Joined, "")
	cancel(why)
	outcomes, err := wait(t, g)
	if !errors.Is(err, why) {
		t.Errorf("error %v, want %v", err, why)
	}
	wantStates(t, outcomes, launch.Stopped, launch.Stopped)
	if s := outcomes[0].Signal; s != "SIGKILL" {
		t.Errorf("the rank that ignores SIGTERM was ended by %q", s)
	}
	waitKilled(t, pids...)
	if _, err := launch.Start(ctx, roleSpecs("sleep"), testOptions()); !errors.Is(err, why) {
		t.Errorf("start after cancellation: %v", err)
	}
}

func TestChildrenOfFinishedRankAreKilled(t *testing.T) {
	var r eventLog
	outcomes, err := run(t, []launch.Spec{roleSpec(0, "children", "leave")}, testOptions(func(o *launch.Options) { o.OnEvent = r.add }))
	if err != nil {
		t.Error(err)
	}
	wantStates(t, outcomes, launch.Finished)
	waitKilled(t, pidsIn(t, r.waitFor(t, 0, launch.Marked, "children").Text)...)
}

func TestRanksChildrenAndGuardDieWithLauncher(t *testing.T) {
	checkNoLeaks(t)
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), roleEnv+"=launcher")
	out := must.Get(parent.StdoutPipe())(t)
	parent.Stderr = os.Stderr
	must.Do(t, parent.Start())
	var output []byte
	for buf := make([]byte, 4096); bytes.Count(output, []byte("\n")) < 2; {
		n, err := out.Read(buf)
		if err != nil {
			t.Fatalf("the launcher printed only %q: %v", output, err)
		}
		output = append(output, buf[:n]...)
	}
	var pids []int
	for line := range strings.Lines(string(output)) {
		pids = append(pids, pidsIn(t, line)...)
	}
	if len(pids) != 6 {
		t.Fatalf("%d processes in %q, want 6", len(pids), output)
	}
	for _, pid := range pids {
		if !isRunning(pid) {
			t.Errorf("process %d does not run", pid)
		}
	}
	pids = append(pids, guardsOf(t, parent.Process.Pid)...)
	must.Do(t, parent.Process.Kill())
	_ = parent.Wait()
	began := time.Now()
	waitKilled(t, pids...)
	t.Logf("%d processes killed after %v", len(pids), time.Since(began).Round(100*time.Microsecond))
}

// guardsOf finds the guard among the children of a launcher in /proc.
func guardsOf(t *testing.T, parent int) (pids []int) {
	t.Helper()
	if runtime.GOOS != "linux" {
		return nil
	}
	all := must.Get(filepath.Glob("/proc/[0-9]*"))(t)
	for _, dir := range all {
		stat, _ := os.ReadFile(filepath.Join(dir, "stat")) // the process may have exited
		args, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		_, afterName, _ := strings.Cut(string(stat), ") ") // state, then the parent
		fields := strings.Fields(afterName)
		if len(fields) > 1 && fields[1] == itoa(parent) && bytes.Contains(args, []byte("fabrictest-guard")) {
			pids = append(pids, pidsIn(t, "guard "+filepath.Base(dir))...)
		}
	}
	if len(pids) != 1 {
		t.Errorf("process %d has %d guards, want 1", parent, len(pids))
	}
	return pids
}

func TestOutputBeyondLimitIsDropped(t *testing.T) {
	dir := t.TempDir()
	mib := 150
	if testing.Short() {
		mib = 30
	}
	began := time.Now()
	var shown bytes.Buffer
	outcomes, err := run(t, []launch.Spec{roleSpec(0, "flood", itoa(mib))}, testOptions(func(o *launch.Options) {
		o.LogDir, o.LogLimit, o.Output = dir, 1<<20, &shown
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d MiB in %v", 2*mib, time.Since(began).Round(time.Millisecond))
	for _, tt := range []struct {
		out  launch.Output
		name string
		last string
	}{{outcomes[0].Stdout, "rank0.stdout", "last of stdout"}, {outcomes[0].Stderr, "rank0.stderr", "last of stderr"}} {
		total := int64(mib<<20 + len(tt.last))
		if tt.out.Bytes != total || tt.out.Dropped != total-1<<20 || tt.out.Error != "" {
			t.Errorf("%s: %d bytes, %d dropped, %q; want %d, %d", tt.name, tt.out.Bytes, tt.out.Dropped, tt.out.Error, total, total-1<<20)
		}
		if !strings.HasSuffix(tt.out.Tail, tt.last) || len(tt.out.Tail) != 64<<10 {
			t.Errorf("%s: tail of %d bytes ends in %q", tt.name, len(tt.out.Tail), tt.out.Tail[max(0, len(tt.out.Tail)-20):])
		}
		if tt.out.Path != filepath.Join(dir, tt.name) {
			t.Errorf("log %q", tt.out.Path)
		}
		log := must.Get(os.ReadFile(tt.out.Path))(t)
		if !bytes.HasSuffix(log, []byte(tt.last)) || !bytes.Contains(log, []byte("… cut, ")) || len(log) > 2<<20 {
			t.Errorf("%s: log of %d bytes ends in %q", tt.name, len(log), log[max(0, len(log)-20):])
		}
	}
	if n := shown.Len(); n < 2<<20 || n > 3<<20 || !bytes.HasPrefix(shown.Bytes(), []byte("0: ")) {
		t.Errorf("%d bytes were shown, beginning with %.10q", n, shown.Bytes())
	}
}

func TestMaxRSSExcludesLauncherMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs VmHWM in /proc")
	}
	launcherMemory := make([]byte, 200<<20) // would be part of Rusage.Maxrss
	for i := 0; i < len(launcherMemory); i += 4096 {
		launcherMemory[i] = 1
	}
	outcomes := must.Get(run(t, []launch.Spec{roleSpec(0, "memory", "1"), roleSpec(1, "memory", "120")}, testOptions()))(t)
	runtime.KeepAlive(launcherMemory)
	small, large := outcomes[0].MaxRSS>>20, outcomes[1].MaxRSS>>20
	if small < 2 || small > 100 || large < 120 || large > 400 || outcomes[0].MaxRSSIsUpperBound {
		t.Errorf("RSS of %d and %d MiB, want 2 to 100 and 120 to 400", small, large)
	}
	if outcomes[1].User+outcomes[1].System <= 0 {
		t.Error("no CPU time")
	}
}
