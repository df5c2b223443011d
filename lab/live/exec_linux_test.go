package live

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/daemon"
	"github.com/fabrictest/fabrictest/netns"
)

// client runs a program in a host by a client process.
func client(t *testing.T, cmd *exec.Cmd, stdin string) (code int, out string) {
	t.Helper()
	var b bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &b, &b
	err := cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return daemon.ExitCode(cmd.ProcessState), b.String()
}

func TestExecUsesDescriptorsEnvAndExitCode(t *testing.T) {
	t.Parallel()
	name := up(t, 2)
	dir := t.TempDir()
	script := filepath.Join(dir, "in-path-of-client")
	// A process forked while the file is written inherits the descriptor, and exec of a file open
	// for writing fails.
	syscall.ForkLock.RLock()
	err := os.WriteFile(script, []byte("#!/bin/sh\necho found as $0\n"), 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		stdin string
		args  []string
		code  int
		want  string
	}{
		{"", []string{"sh", "-c", "exit 9"}, 9, ""},
		{"", []string{"sh", "-c", "kill -9 $$"}, 128 + 9, ""},
		{"input", []string{"cat"}, 0, "input"},
		{"", []string{"sh", "-c", "pwd; echo $FABRICTEST_HOST $CALLER"}, 0, dir + "\nhost1 me\n"},
		{"", []string{"sh", "-c", "echo out; echo err >&2"}, 0, "out\nerr\n"},
		{"", []string{"sh", "-c", "test -t 0 || echo no terminal"}, 0, "no terminal\n"},
		{"", []string{"in-path-of-client"}, 0, "found as " + script + "\n"},
		{"", []string{"./in-path-of-client"}, 0, "found as ./in-path-of-client\n"},
		{"", []string{"no-such-program"}, 99, "executable file not found"},
		// Background processes end, too, or the client would not see the end of output.
		{"", []string{"sh", "-c", "sleep 600 & exit 4"}, 4, ""},
	} {
		cmd := role(t, roleExec, append([]string{name, "host1"}, c.args...)...)
		cmd.Dir = dir
		cmd.Env = append(cmd.Env, "CALLER=me", "PATH="+dir+":"+os.Getenv("PATH"), "PWD="+dir)
		code, out := client(t, cmd, c.stdin)
		if code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%q: exit code %d, %q; want %d, %q", c.args, code, out, c.code, c.want)
		}
	}
}

func TestExecForwardsSignals(t *testing.T) {
	t.Parallel()
	name := up(t, 2)
	for sig, signal := range map[syscall.Signal]string{
		syscall.SIGINT: "INT", syscall.SIGTERM: "TERM", syscall.SIGHUP: "HUP", syscall.SIGQUIT: "QUIT",
	} {
		cmd := role(t, roleExec, name, "host0", "sh", "-c", "trap 'echo got "+signal+"; exit 6' "+signal+"; echo ready; while :; do sleep 0.01; done")
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdout, cmd.Stderr = w, w
		must.Do(t, cmd.Start())
		w.Close()
		ready := make([]byte, len("ready\n"))
		must.Get(io.ReadFull(r, ready))(t)
		must.Do(t, cmd.Process.Signal(sig))
		out, _ := io.ReadAll(r)
		_ = cmd.Wait() // ExitCode reads the state
		if code := daemon.ExitCode(cmd.ProcessState); code != 6 || !strings.Contains(string(out), "got "+signal+"\n") {
			t.Errorf("%v: exit code %d, %q", sig, code, out)
		}
		r.Close()
	}
}

// onTerminal runs a program in a host on a terminal, and returns its output. The
// function before may read and type from the start.
func onTerminal(t *testing.T, lab string, before func(master *os.File), args ...string) (code int, shown string) {
	t.Helper()
	master, slave, err := openTerminal(33, 77)
	if err != nil {
		t.Skip(err)
	}
	defer master.Close()
	cmd := role(t, roleExec, append([]string{lab, "host0"}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	must.Do(t, cmd.Start())
	slave.Close()
	if before != nil {
		before(master)
	}
	text := make(chan string)
	go func() {
		b, _ := io.ReadAll(master) // fails with EIO when the last slave descriptor is closed
		text <- string(b)
	}()
	_ = cmd.Wait() // ExitCode reads the state
	return daemon.ExitCode(cmd.ProcessState), <-text
}

// readReady reads a terminal until it has shown that its program is ready.
func readReady(t *testing.T, master *os.File) {
	t.Helper()
	shown, b := "", make([]byte, 100)
	for !strings.Contains(shown, "ready") {
		n, err := master.Read(b)
		if err != nil {
			t.Fatalf("%v, after %q", err, shown)
		}
		shown += string(b[:n])
	}
}

func TestExecOnTerminal(t *testing.T) {
	t.Parallel()
	name := up(t, 2)
	code, shown := onTerminal(t, name, nil, "sh", "-c", "test -t 0 && test -t 1 && stty size; echo $FABRICTEST_HOST; exit 5")
	if code != 5 || !strings.Contains(shown, "33 77\r\n") || !strings.Contains(shown, "host0\r\n") {
		t.Errorf("exit code %d, %q", code, shown)
	}
	code, shown = onTerminal(t, name, func(master *os.File) { _, _ = master.WriteString("typed\n") }, "sh", "-c", "read word; echo read $word")
	if code != 0 || !strings.Contains(shown, "read typed") {
		t.Errorf("exit code %d, %q", code, shown)
	}
	// Ctrl-C goes to the program, which handles it.
	code, shown = onTerminal(t, name, func(master *os.File) {
		readReady(t, master) // its trap is set
		_, _ = master.WriteString("\x03")
	}, "sh", "-c", "trap 'echo interrupted; exit 3' INT; echo ready; while :; do sleep 0.01; done")
	if code != 3 || !strings.Contains(shown, "interrupted") {
		t.Errorf("exit code %d, %q", code, shown)
	}
}

// Background jobs of a shell are killed when it ends.
func TestTerminalClosesWithProgram(t *testing.T) {
	t.Parallel()
	name := up(t, 2)
	within(t, time.Minute, "the end of a shell with a job", func() {
		code, shown := onTerminal(t, name, nil, "sh", "-c", "set -m; FABRICTEST_TOKEN=job-of-"+name+" sleep 600 & exit 5")
		if code != 5 {
			t.Errorf("exit code %d, %q", code, shown)
		}
	})
	await(t, "the job has ended", func() bool { return !runsWith("job-of-" + name) })
}

// Also if the client ignores SIGHUP, as with nohup.
func TestClosedTerminalEndsProgram(t *testing.T) {
	t.Parallel()
	name := up(t, 2)
	master, slave, err := openTerminal(33, 77)
	if err != nil {
		t.Skip(err)
	}
	defer master.Close()
	self := must.Get(os.Executable())(t)
	cmd := role(t, roleExec)
	cmd.Path = "/bin/sh"
	cmd.Args = []string{"sh", "-c", `trap '' HUP; exec "$0" "$@"`, self, name, "host0", "sh", "-c", "echo ready; sleep 600"}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	must.Do(t, cmd.Start())
	slave.Close()
	readReady(t, master)
	master.Close()
	_ = cmd.Wait() // it must return; the result does not matter
	await(t, "the program has ended", func() bool { return mustAnswer(t, name).Programs == 0 })
}

func TestRunProgramReturnsWhenChildExitsEarly(t *testing.T) {
	if err := netns.Available(); err != nil {
		t.Skip(err)
	}
	t.Setenv(exitVariable, "1")
	before := openFiles(t, os.Getpid())
	within(t, time.Minute, "the end", func() {
		code, err := RunProgram(t.Context(), star(2), Program{Args: []string{"true", strings.Repeat("x", 1<<20)}})
		if code != 7 && err == nil {
			t.Errorf("exit code %d, %v", code, err)
		}
	})
	if after := openFiles(t, os.Getpid()); after > before+1 { // netns keeps one
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func TestExecRejectsEmptyCommand(t *testing.T) {
	if _, err := Exec(t.Context(), "lab", "host0", nil); err == nil {
		t.Error("no program to run")
	}
	var missing *exec.Error
	if _, err := Exec(t.Context(), "lab", "host0", []string{"no-such-program"}); !errors.As(err, &missing) {
		t.Errorf("%v", err)
	}
}
