package launch_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/launch"
)

func itoa(n int) string { return strconv.Itoa(n) }

func TestIfOneCannotBeStartedNoneRuns(t *testing.T) {
	noLeaks(t)
	specs := cast("family", "sleep", "sleep", "sleep")
	specs[2].Cmd.Path = "/no/such/program"
	var pids []int
	for i := range specs {
		specs[i].Start = func(cmd *exec.Cmd) error {
			err := cmd.Start()
			if err == nil {
				pids = append(pids, cmd.Process.Pid)
			}
			return err
		}
	}
	_, err := launch.Start(t.Context(), specs, quick())
	wantError(t, err, "start rank 2 (hostc)", "/no/such/program")
	if len(pids) != 2 {
		t.Errorf("%d processes were started, want 2", len(pids))
	}
	vanished(t, pids...)
}

func TestStartFunctionIsHeldToItsContract(t *testing.T) {
	noLeaks(t)
	specs := cast("sleep")
	specs[0].Start = func(*exec.Cmd) error { return nil }
	_, err := launch.Start(t.Context(), specs, quick())
	wantError(t, err, "without having called cmd.Start")
	specs[0].Start = func(cmd *exec.Cmd) error {
		if err := cmd.Start(); err != nil {
			return err
		}
		return errors.New("changed my mind")
	}
	_, err = launch.Start(t.Context(), specs, quick())
	wantError(t, err, "changed my mind")
}

func TestWhatCannotBeStartedIsExplained(t *testing.T) {
	noLeaks(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name  string
		specs []launch.Spec
		opts  launch.Options
		says  string
	}{
		{"nobody", nil, launch.Options{}, "no ranks"},
		{"gap", []launch.Spec{spec(0, "sleep"), spec(2, "sleep")}, launch.Options{}, "numbered 0 to 1"},
		{"twice", []launch.Spec{spec(0, "sleep"), spec(0, "sleep")}, launch.Options{}, "second for rank 0"},
		{"nothing", []launch.Spec{{}}, launch.Options{}, "no program"},
		{"job", []launch.Spec{{Cmd: launch.Command{Path: "x"}, Job: make([]byte, 65<<20)}}, launch.Options{}, "job of"},
		{"folder", cast("sleep"), launch.Options{LogDir: "/no/such/folder"}, "log folder"},
		{"file", cast("sleep"), launch.Options{LogDir: file}, "not a folder"},
		{"beats", cast("sleep"), launch.Options{Heartbeat: time.Second, Patience: time.Second}, "two heart-beats"},
		{"time", cast("sleep"), launch.Options{Grace: -1}, "negative"},
		{"report", cast("sleep"), launch.Options{MaxReport: 1 << 30}, "must be within"},
		{"output", cast("sleep"), launch.Options{LogLimit: -1}, "cannot be"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := launch.Start(t.Context(), tt.specs, tt.opts)
			wantError(t, err, "launch: ", tt.says)
		})
	}
}

func TestRankMustJoinInTime(t *testing.T) {
	outcomes, err := run(t, cast("lurk", "sleep"), quick(func(o *launch.Options) { o.JoinWait = 300 * time.Millisecond }))
	want(t, outcomes, launch.Failed, launch.Stopped)
	wantError(t, err, "rank 0", "did not join within 300ms")
	if !strings.Contains(outcomes[0].Waiting, "goroutine 1") {
		t.Errorf("what it did instead is not shown: %q", outcomes[0].Waiting)
	}
}

func TestRankMustExitWhenItIsDone(t *testing.T) {
	outcomes, err := run(t, cast("linger"), quick(func(o *launch.Options) { o.Patience = 300 * time.Millisecond }))
	want(t, outcomes, launch.Hung)
	wantError(t, err, "did not exit for")
}

func TestAnyProgramCanBeARankIfItNeedNotJoin(t *testing.T) {
	shell := func(rank int, script string) launch.Spec {
		return launch.Spec{Rank: rank, Host: "h" + itoa(rank), Cmd: launch.Command{Path: "/bin/sh", Args: []string{"-c", script}, Dir: "/"}}
	}
	var r record
	outcomes, err := run(t, []launch.Spec{
		shell(0, `echo "$FABRICTEST_RANK/$FABRICTEST_SIZE $FABRICTEST_HOST $FABRICTEST_CONTROL $PWD"`),
		shell(1, `exec 3>&-; sleep 0.3; echo done >&2; printf tail`),
		shell(2, `exit 9`),
		shell(3, `kill -USR1 $$`),
		spec(4, "exchange"), // meets nobody at its barriers, for it waits for the others' end
	}[:4], quick(func(o *launch.Options) {
		o.Join, o.KeepGoing, o.OnEvent, o.Patience = launch.JoinOptional, true, r.note, 100*time.Millisecond
	}))
	want(t, outcomes, launch.Finished, launch.Finished, launch.Exited, launch.Crashed)
	wantError(t, err, "rank ")
	if got := outcomes[0].Stdout.Tail; got != "0/4 h0 3 /\n" {
		t.Errorf("environment of a rank: %q", got)
	}
	if o := outcomes[1]; o.Stderr.Tail != "done\n" || o.Stdout.Tail != "tail" || o.Joined {
		t.Errorf("rank 1: %+v", o)
	}
	if e := r.of(1, launch.Printed); len(e) != 2 {
		t.Errorf("lines of rank 1: %v", e)
	}
	if o := outcomes[3]; o.Signal != "SIGUSR1" {
		t.Errorf("rank 3 ended by %q", o.Signal)
	}
}

func TestFilesArePassedOn(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	s := launch.Spec{Cmd: launch.Command{Path: "/bin/sh", Args: []string{"-c", "echo hello >&4"}, Files: []*os.File{write}}}
	_, err = run(t, []launch.Spec{s}, quick(func(o *launch.Options) { o.Join = launch.JoinOptional }))
	write.Close()
	if err != nil {
		t.Error(err)
	}
	var b [16]byte
	if n, _ := read.Read(b[:]); string(b[:n]) != "hello\n" {
		t.Errorf("through descriptor 4 came %q", b[:n])
	}
}

func TestSlowListenerDelaysRanksAndBlamesNobody(t *testing.T) {
	outcomes, err := run(t, cast("exchange", "exchange"), quick(func(o *launch.Options) {
		o.Patience = 150 * time.Millisecond
		o.OnEvent = func(e launch.Event) {
			if e.Kind == launch.Marked {
				time.Sleep(350 * time.Millisecond)
			}
		}
	}))
	if err != nil {
		t.Error(err)
	}
	want(t, outcomes, launch.Finished, launch.Finished)
}

func TestEveryRankHasAThreadOfItsOwn(t *testing.T) {
	// A process that another thread started dies with that thread: so says the
	// kernel, and the error says what to look at.
	if !hasPdeathsig {
		t.Skip("this system has no Pdeathsig")
	}
	specs := cast("sleep")
	specs[0].Start = func(cmd *exec.Cmd) error {
		done := make(chan error)
		go startOnDyingThread(cmd, done)
		return <-done
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	outcomes, err := wait(t, start(t, ctx, specs, quick()))
	want(t, outcomes, launch.Crashed)
	wantError(t, err, "ended by SIGKILL", "Spec.Start")
}
