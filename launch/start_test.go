package launch_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/launch"
)

func itoa(n int) string { return strconv.Itoa(n) }

func TestStartKillsAllRanksIfOneFails(t *testing.T) {
	checkNoLeaks(t)
	specs := roleSpecs("children", "sleep", "sleep", "sleep")
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
	_, err := launch.Start(t.Context(), specs, testOptions())
	wantErrorContaining(t, err, "start rank 2 (hostc)", "/no/such/program")
	if len(pids) != 2 {
		t.Errorf("%d processes were started, want 2", len(pids))
	}
	waitKilled(t, pids...)
}

func TestStartFunctionMustStartProcess(t *testing.T) {
	checkNoLeaks(t)
	specs := roleSpecs("sleep")
	specs[0].Start = func(*exec.Cmd) error { return nil }
	_, err := launch.Start(t.Context(), specs, testOptions())
	wantErrorContaining(t, err, "without having called cmd.Start")
	specs[0].Start = func(cmd *exec.Cmd) error {
		if err := cmd.Start(); err != nil {
			return err
		}
		return errors.New("start failed")
	}
	_, err = launch.Start(t.Context(), specs, testOptions())
	wantErrorContaining(t, err, "start failed")
}

func TestStartRejectsInvalidArguments(t *testing.T) {
	checkNoLeaks(t)
	file := filepath.Join(t.TempDir(), "file")
	must.Do(t, os.WriteFile(file, nil, 0o600))
	tests := []struct {
		name  string
		specs []launch.Spec
		opts  launch.Options
		want  string
	}{
		{"no ranks", nil, launch.Options{}, "no ranks"},
		{"missing rank", []launch.Spec{roleSpec(0, "sleep"), roleSpec(2, "sleep")}, launch.Options{}, "numbered 0 to 1"},
		{"duplicate rank", []launch.Spec{roleSpec(0, "sleep"), roleSpec(0, "sleep")}, launch.Options{}, "second for rank 0"},
		{"no program", []launch.Spec{{}}, launch.Options{}, "no program"},
		{"job too long", []launch.Spec{{Cmd: launch.Command{Path: "x"}, Job: make([]byte, 65<<20)}}, launch.Options{}, "job of"},
		{"missing log directory", roleSpecs("sleep"), launch.Options{LogDir: "/no/such/folder"}, "log directory"},
		{"log directory is a file", roleSpecs("sleep"), launch.Options{LogDir: file}, "not a directory"},
		{"heartbeat longer than timeout", roleSpecs("sleep"), launch.Options{Heartbeat: time.Second, HangTimeout: time.Second}, "two heartbeats"},
		{"negative time", roleSpecs("sleep"), launch.Options{TermGrace: -1}, "negative"},
		{"report limit too large", roleSpecs("sleep"), launch.Options{MaxReport: 1 << 30}, "must be at most"},
		{"negative log limit", roleSpecs("sleep"), launch.Options{LogLimit: -1}, "LogLimit is negative"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := launch.Start(t.Context(), tt.specs, tt.opts)
			wantErrorContaining(t, err, "launch: ", tt.want)
		})
	}
}

func TestRankInheritsFiles(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	s := launch.Spec{Cmd: launch.Command{Path: "/bin/sh", Args: []string{"-c", "echo hello >&4"}, Files: []*os.File{write}}}
	_, err = run(t, []launch.Spec{s}, testOptions(func(o *launch.Options) { o.Join = launch.JoinOptional }))
	write.Close()
	if err != nil {
		t.Error(err)
	}
	var b [16]byte
	if n, _ := read.Read(b[:]); string(b[:n]) != "hello\n" {
		t.Errorf("read %q from descriptor 4", b[:n])
	}
}

// The kernel kills a process whose parent thread exits; the error mentions Spec.Start.
func TestRankStartedOnExitingThreadIsKilled(t *testing.T) {
	if !hasPdeathsig {
		t.Skip("this system has no Pdeathsig")
	}
	specs := roleSpecs("sleep")
	specs[0].Start = func(cmd *exec.Cmd) error {
		done := make(chan error)
		go startOnDyingThread(cmd, done)
		return <-done
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	outcomes, err := wait(t, start(ctx, t, specs, testOptions()))
	wantStates(t, outcomes, launch.Crashed)
	wantErrorContaining(t, err, "ended by SIGKILL", "Spec.Start")
}
