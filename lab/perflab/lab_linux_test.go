package perflab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/perf"
	"github.com/fabrictest/fabrictest/verbs"
)

// needNamespaces skips the test if there are no network namespaces.
func needNamespaces(t *testing.T) {
	t.Helper()
	if why := netns.Available(); why != nil {
		t.Skipf("no network namespaces here: %v", why)
	}
}

func TestQuickMeasuresEverything(t *testing.T) {
	t.Parallel()
	needNamespaces(t)
	var progress []float64
	q := must.Get(Quick(t.Context(), Options{Rounds: 1, Slice: 2 * time.Millisecond, Progress: func(_ string, done float64) { progress = append(progress, done) }}))(t)
	for name, v := range map[string]float64{
		"write to limit": q.Ratios.WriteToLimit, "offloaded": q.Ratios.WriteToLimitOffloaded,
		"spinning": q.Ratios.LatencyToRawSpinning, "blocking": q.Ratios.LatencyToRawBlocking,
		"rate": q.Rates.Send64PerS, "flatness": q.Rates.QPsFlatness, "memory": q.Memory.IdleMB,
	} {
		if v <= 0 {
			t.Errorf("%s is %v", name, v)
		}
	}
	if len(q.Samples) < 40 || len(q.Streams) != 27 || len(q.Targets) != 6 {
		t.Errorf("%d series, %d streams, %d targets", len(q.Samples), len(q.Streams), len(q.Targets))
	}
	if !slices.IsSorted(progress) || progress[len(progress)-1] != 1 {
		t.Errorf("progress %v", progress)
	}
}

func TestIWARPMeasuresEverything(t *testing.T) {
	t.Parallel()
	needNamespaces(t)
	q := must.Get(IWARP(t.Context(), Options{Rounds: 1, Slice: 2 * time.Millisecond}))(t)
	for name, v := range map[string]float64{
		"write to limit": q.Ratios.WriteToLimit, "offloaded": q.Ratios.WriteToLimitOffloaded,
		"spinning": q.Ratios.LatencyToRawSpinning, "blocking": q.Ratios.LatencyToRawBlocking,
		"rate": q.Rates.Send64PerS, "flatness": q.Rates.QPsFlatness, "memory": q.Memory.IdleMB,
	} {
		if v <= 0 {
			t.Errorf("%s is %v", name, v)
		}
	}
	if d := q.Ratios.Datagrams; d == nil || d.LatencySpinning <= 0 || d.LatencyBlocking <= 0 || d.Bandwidth <= 0 {
		t.Errorf("datagrams %+v", d)
	}
	if len(q.Comparisons) != 26 || len(q.Streams) != 27 {
		t.Errorf("%d comparisons, %d streams", len(q.Comparisons), len(q.Streams))
	}
}

func TestBenchmarksInNamespaces(t *testing.T) {
	t.Parallel()
	needNamespaces(t)
	for _, c := range []struct{ provider, transport string }{{"softroce", ""}, {"softroce", "xrc"}, {"softiwarp", ""}, {"dgiwarp", "rd"}} {
		doing := ""
		b := Benchmark{
			Benchmark: perf.Benchmark{Kind: perf.Lat, Sizes: []int{8, 64}, Load: perf.Load{Iterations: 20, Warmup: 1}},
			Provider:  c.provider, Transport: c.transport, On: InNamespaces, Progress: func(what string, _ float64) { doing = what },
		}
		r := must.Get(b.Run(t.Context()))(t)
		if len(r.Rows) != 2 || r.Rows[1].Bytes != 64 || r.Rows[1].Times.Count() != 20 || r.Rows[1].Times.Min() <= 0 || doing != "half round trip 64 B, spinning" {
			t.Errorf("%+v: rows %+v, progress %q", c, r.Rows, doing)
		}
	}
	b := Benchmark{Benchmark: perf.Benchmark{Kind: perf.BW, Load: perf.Load{Iterations: 10, Inline: 60000}}, On: InNamespaces}
	if _, err := b.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "send 64 KiB, singly: ") {
		t.Errorf("got %v", err)
	}
}

// A cable in shared memory needs no namespaces. It connects devices that send datagrams.
func TestBenchmarksOnCable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		provider  string
		offloaded bool
	}{{"softroce", false}, {"softroce", true}, {"dgiwarp", false}} {
		b := Benchmark{
			Benchmark: perf.Benchmark{Kind: perf.MsgRate, Load: perf.Load{Iterations: 200}},
			Provider:  c.provider, ICRCOffloaded: c.offloaded, On: OnCable,
		}
		r := must.Get(b.Run(t.Context()))(t)
		if len(r.Rows) != 1 || r.Run.Device.Link != "shared memory" {
			t.Errorf("%+v: rows %+v on %q", c, r.Rows, r.Run.Device.Link)
		}
	}
	b := Benchmark{Benchmark: perf.Benchmark{Kind: perf.Lat}, Provider: "softiwarp", On: OnCable}
	if _, err := b.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "soft-iWARP needs TCP") {
		t.Errorf("got %v", err)
	}
}

func TestUnknownPlanFails(t *testing.T) {
	needNamespaces(t)
	if _, err := runPlan(t.Context(), "slow", Options{}); err == nil || !strings.Contains(err.Error(), `"slow"`) {
		t.Errorf("got %v", err)
	}
}

func TestCancelEndsRun(t *testing.T) {
	needNamespaces(t)
	ctx, cancel := context.WithCancel(t.Context())
	var cancelled time.Time
	_, err := Quick(ctx, Options{Progress: func(doing string, _ float64) {
		if strings.HasPrefix(doing, "write") && ctx.Err() == nil {
			cancelled = time.Now()
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if took := time.Since(cancelled); took > 30*time.Second { // a full run takes minutes
		t.Errorf("ended %v after it was cancelled", took)
	}
	noChildren(t)
}

// noChildren fails the test if a child process still runs.
func noChildren(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		lists, err := filepath.Glob("/proc/self/task/*/children")
		if err != nil || len(lists) == 0 {
			t.Skip("the kernel does not list children")
		}
		left := ""
		for _, l := range lists {
			b, _ := os.ReadFile(l)
			left += string(b)
		}
		if left == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("child processes %s still run", left)
			return
		}
	}
}

func TestDeadHostEndsRun(t *testing.T) {
	b := devices{newTestbed(t), conformance.RoCE}
	time.AfterFunc(100*time.Millisecond, func() { _ = b.pair.group.Kill(1) })
	_, err := b.Run(t.Context(), perf.Program{Rate: &perf.Rate{Duration: time.Minute}}, false)
	if err == nil || !strings.Contains(err.Error(), "host1 has ended") {
		t.Errorf("got %v", err)
	}
}

// TestFrozenHostKeepsConnection freezes a host for three seconds, as a busy machine may.
func TestFrozenHostKeepsConnection(t *testing.T) {
	t.Parallel()
	b := devices{newTestbed(t), conformance.RoCE}
	thawed := make(chan error, 1)
	time.AfterFunc(100*time.Millisecond, func() {
		err := b.pair.group.Freeze(1)
		time.Sleep(3 * time.Second)
		thawed <- errors.Join(err, b.pair.group.Thaw(1))
	})
	_, err := b.Run(t.Context(), perf.Program{Stream: &perf.Stream{Op: verbs.OpRDMAWrite, Bytes: 4096, Duration: 200 * time.Millisecond}}, false)
	must.Do(t, errors.Join(err, <-thawed))
}

func TestHostErrorEndsRun(t *testing.T) {
	b := newTestbed(t)
	_, err := b.pair.runBoth(t.Context(), command{Kind: conformance.RoCE})
	if err == nil || !strings.Contains(err.Error(), "empty command") {
		t.Errorf("got %v", err)
	}
}

func TestTwoCPUsAreNotSiblings(t *testing.T) {
	a, b := twoCPUs()
	if a == 0 && b == 0 {
		t.Skip("this process may use one processor only")
	}
	if a == b || siblings(a-1, b-1) || !siblings(a-1, a-1) {
		t.Errorf("processors %d and %d", a, b)
	}
}

// If one of the two processes ends before it accepts commands, the other is killed.
func TestStartFailsIfOneProcessEnds(t *testing.T) {
	self := must.Get(os.Executable())(t)
	var hosts [2]Host
	for i := range hosts {
		hosts[i] = Host{Name: fmt.Sprintf("host%d", i), Start: func(cmd *exec.Cmd) error {
			if i == 1 {
				cmd.Path, cmd.Args = "/bin/false", []string{"false"}
			}
			return cmd.Start()
		}}
	}
	failed := make(chan error, 1)
	go func() {
		_, err := startProcesses(hosts, append([]string{self}, HostArgs...), io.Discard)
		failed <- err
	}()
	select {
	case err := <-failed:
		if err == nil || !strings.Contains(err.Error(), "host1 has ended") {
			t.Errorf("started with a process that has ended: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("startProcesses still waits for a process that has ended")
	}
}
