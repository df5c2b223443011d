package simlab

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
	"github.com/fabrictest/fabrictest/scenarios/workload"
	"github.com/fabrictest/fabrictest/verbs"
)

var pingDatagram = link.Datagram{Payload: make([]byte, 64)}

// scripted is a program whose Run is a function.
type scripted struct {
	rank *workload.Rank
	do   func(*workload.Rank) error
}

func (s *scripted) Run() (*workload.Report, error) {
	return &workload.Report{Rank: s.rank.Rank}, s.do(s.rank)
}
func (s *scripted) Status() string { return "runs a script" }

// runScript runs a scenario of two hosts with scripted programs.
func runScript(t *testing.T, extra string, do func(*workload.Rank) error) *report.Result {
	t.Helper()
	s := parse(t, "fabric: {kind: pair}\nworkload: {kind: stream, messages: 1}\nexpect: {delivered: any}\n"+extra)
	return runWith(context.Background(), s, lab.Options{}, func(_ workload.Config, r *workload.Rank) (workload.Program, error) {
		return &scripted{r, do}, nil
	})
}

func TestPanicBreaksRun(t *testing.T) {
	r := runScript(t, "", func(r *workload.Rank) error {
		if r.Rank == 1 {
			panic("test panic")
		}
		r.Proc.Sleep(time.Second)
		return nil
	})
	if r.Verdict != report.Broken || !strings.Contains(r.Reason, "rank 1 on host1 panicked: test panic") || !strings.Contains(r.Detail, "failure_test.go") {
		t.Errorf("%s: %s\n%s", r.Verdict, r.Reason, r.Detail)
	}
}

func TestFailedProgramFailsRun(t *testing.T) {
	r := runScript(t, "", func(r *workload.Rank) error {
		if r.Rank == 1 {
			return errors.New("no receive queue")
		}
		_, err := r.Control.Recv(1, verbs.Forever)
		if !errors.Is(err, workload.ErrGone) {
			t.Errorf("the peer of a failed rank receives %v", err)
		}
		return nil
	})
	if r.Verdict != report.Failed || r.Reason != "programs: want every program ends without an error, got rank 1 on host1 failed: no receive queue" {
		t.Errorf("%s: %s", r.Verdict, r.Reason)
	}
	if r.Ranks[0].State != lab.Finished || r.Ranks[1].State != lab.Errored || r.Ranks[1].Error != "no receive queue" {
		t.Errorf("%s, %s", r.Ranks[0].State, r.Ranks[1].State)
	}
}

func TestDeadlockAndTimeLimitFailRun(t *testing.T) {
	r := runScript(t, "", func(r *workload.Rank) error {
		_, err := r.Control.Recv(1-r.Rank, verbs.Forever)
		return err
	})
	if r.Verdict != report.Failed || !strings.Contains(r.Reason, "rank 0 on host0 did not end: deadlock at 0 ns") {
		t.Errorf("%s: %s", r.Verdict, r.Reason)
	}
	for i, k := range r.Ranks {
		if k.State != lab.Hung || !strings.Contains(k.Waiting, "runs a script\nwaits for a message from rank "+string('1'-rune(i))) {
			t.Errorf("rank %d: %s: %q", i, k.State, k.Waiting)
		}
	}
	r = runScript(t, "limit: 3ms\n", func(r *workload.Rank) error {
		for {
			r.Proc.Sleep(time.Microsecond)
		}
	})
	if r.Verdict != report.Failed || !strings.Contains(r.Reason, "the limit of 3 ms is reached") || r.Elapsed != 3*time.Millisecond {
		t.Errorf("%s after %v: %s", r.Verdict, r.Elapsed, r.Reason)
	}
}

func TestInterruptedRun(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	s := parse(t, "fabric: {kind: pair}\nworkload: {kind: stream, messages: 1}\n")
	cause := errors.New("stopped by the test")
	r := runWith(ctx, s, lab.Options{}, func(_ workload.Config, r *workload.Rank) (workload.Program, error) {
		return &scripted{r, func(r *workload.Rank) error {
			for i := 0; ; i++ {
				if r.Proc.Sleep(1); i == 1000 {
					cancel(cause)
				}
			}
		}}, nil
	})
	if r.Verdict != report.Broken || !strings.Contains(r.Reason, "interrupted at") || !strings.Contains(r.Reason, "stopped by the test") {
		t.Errorf("%s: %s", r.Verdict, r.Reason)
	}
	for _, k := range r.Ranks {
		if k.State != lab.Hung {
			t.Errorf("rank %d is %q, want it hung", k.Rank, k.State)
		}
	}
}

func TestScenarioThatCannotRunIsBroken(t *testing.T) {
	r := runText(t, "tiers: [netns]\nfabric: {kind: pair}\nworkload: {kind: stream, messages: 1}\n", lab.Options{})
	if r.Verdict != report.Broken || !strings.Contains(r.Reason, "test.yaml:4:") {
		t.Errorf("%s: %s", r.Verdict, r.Reason)
	}
	invalid := &scenarios.Scenario{Name: "invalid", Fabric: scenarios.Fabric{Kind: "heap"}}
	if r := Run(context.Background(), invalid, lab.Options{}); r.Verdict != report.Broken || r.Name != "invalid" {
		t.Errorf("%s: %s", r.Verdict, r.Reason)
	}
	// The program has no queue pair to fail.
	r = runScript(t, "faults: [{at: 1us, do: qp-error, on: [host0]}]\n", func(r *workload.Rank) error { r.Proc.Sleep(time.Millisecond); return nil })
	if r.Verdict != report.Broken || !strings.Contains(r.Reason, "rank 0 on host0: the workload stream does not support qp-error") {
		t.Errorf("%s: %s", r.Verdict, r.Reason)
	}
}

// A capture that cannot be written is removed.
func TestCaptureWriteErrors(t *testing.T) {
	const text = "fabric: {kind: pair}\nworkload: {kind: stream, messages: 100}\n"
	dir := t.TempDir()
	blocked := filepath.Join(dir, "file")
	must.Do(t, os.WriteFile(blocked, nil, 0o600))
	r := runText(t, text, lab.Options{Capture: cli.CaptureAll, Dir: blocked})
	if r.Verdict != report.Broken || !strings.Contains(r.Reason, "capture") || !strings.Contains(r.Reason, blocked) {
		t.Errorf("%s: %s", r.Verdict, r.Reason)
	}
	// The capture file is a link to /dev/full, which is always out of space.
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("this system has no /dev/full")
	}
	must.Do(t, os.Mkdir(filepath.Join(dir, "test-sim"), 0o755))
	path := filepath.Join(dir, "test-sim", captureFile)
	must.Do(t, os.Symlink("/dev/full", path))
	r = runText(t, text, lab.Options{Capture: cli.CaptureAll, Dir: dir})
	if r.Verdict != report.Broken || !strings.Contains(r.Reason, "test-sim/capture.pcapng") || !strings.Contains(r.Reason, "no space left") || len(r.Files) != 0 {
		t.Errorf("%s: %s, files %v", r.Verdict, r.Reason, r.Files)
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("an incomplete capture was not removed: %v", err)
	}
	if len(r.Checks) == 0 {
		t.Error("a run without its capture has no checks")
	}
}
