package kernel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/daemon"
)

var labs atomic.Int64

// start starts a lab and stops it at the end of the test.
func start(t *testing.T, c Config) (*Remote, string) {
	t.Helper()
	needLab(t)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	name := fmt.Sprintf("test-%d-%d", os.Getpid(), labs.Add(1))
	must.Do(t, Start(t.Context(), name, c))
	t.Cleanup(func() {
		r, err := Connect(name)
		if err == nil {
			err = r.Down(context.Background())
		}
		var gone *daemon.NotUpError
		if err != nil && !errors.As(err, &gone) {
			t.Error(err)
		}
	})
	r := must.Get(Connect(name))(t)
	return r, name
}

func TestStartAndDown(t *testing.T) {
	c := fakeConfig(t, "good")
	c.Guests = 2
	r, name := start(t, c)
	if err := Start(t.Context(), name, c); !errors.Is(err, ErrAlreadyUp) {
		t.Errorf("a second time: %v", err)
	}
	if names, err := List(); err != nil || !slices.Contains(names, name) {
		t.Errorf("there are %v, %v", names, err)
	}
	info, err := r.Info(t.Context())
	if err != nil || info.Name != name || info.PID == 0 || info.Release != "6.12.0-fake" || len(info.Guests) != 2 || !info.Guests[1].Up {
		t.Fatalf("%+v, %v", info, err)
	}
	if kept, err := os.ReadFile(filepath.Join(info.Consoles, ConsoleName(2))); !strings.Contains(string(kept), ReadyMark) {
		t.Errorf("console on disk: %q, %v", kept, err)
	}
	var out bytes.Buffer
	code, err := r.Exec(t.Context(), 2, Command{Args: []string{"tr", "a-z", "A-Z"}, Stdin: strings.NewReader("words"), Stdout: &out})
	if err != nil || code != 0 || out.String() != "WORDS" {
		t.Errorf("%q, %d, %v", out.String(), code, err)
	}
	path := filepath.Join(t.TempDir(), "file")
	if err := r.Put(t.Context(), 1, File{Path: path, Mode: 0o644, Size: 5, Content: strings.NewReader("hello")}); err != nil {
		t.Error(err)
	}
	if err := r.Restart(t.Context(), 1); err != nil {
		t.Error(err)
	}
	if text, err := r.Console(t.Context(), 1); err != nil || !strings.Contains(text, ReadyMark) {
		t.Errorf("console: %q, %v", text, err)
	}
	if _, _, err := r.Output(t.Context(), 3, Shell("true")); err == nil || !strings.Contains(err.Error(), "there are 1 to 2") {
		t.Errorf("guest 3: %v", err)
	}
	must.Do(t, r.Down(t.Context()))
	// The lab has closed everything; its process is about to exit.
	await(t, "the lab's process is gone", func() bool { return !alive(info.PID) })
	_, err = r.Info(t.Context())
	var gone *daemon.NotUpError
	if !errors.As(err, &gone) {
		t.Errorf("after Down: %v", err)
	}
}

func TestRemoteReportsPanic(t *testing.T) {
	r, _ := start(t, fakeConfig(t, "good"))
	begun, w := io.Pipe()
	waiting := make(chan error)
	go func() {
		_, err := r.Exec(t.Context(), 1, Command{Args: []string{"sh", "-c", "echo begun; sleep 100"}, Stdout: w})
		waiting <- err
	}()
	must.Get(begun.Read(make([]byte, 16)))(t)
	_ = r.SetDevices(t.Context(), 1, nil)
	var e *GuestError
	if err := <-waiting; !errors.As(err, &e) || !e.Panic {
		t.Errorf("got %v", err)
	}
	if info, err := r.Info(t.Context()); err != nil || info.Guests[0].Up || !strings.Contains(info.Guests[0].DownReason, "panicked") {
		t.Errorf("%+v, %v", info, err)
	}
}

func TestStartReportsBootFailure(t *testing.T) {
	needLab(t)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	var e *GuestError
	err := Start(t.Context(), "panics", fakeConfig(t, "panics"))
	if !errors.As(err, &e) || !e.Panic || !strings.Contains(err.Error(), "Fatal exception") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, errors.New("cancelled"))
	defer cancel()
	if err := Start(ctx, "hangs", fakeConfig(t, "hangs")); err == nil || err.Error() != "cancelled" {
		t.Errorf("got %v", err)
	}
	if names, err := List(); err != nil || slices.Contains(names, "panics") || slices.Contains(names, "hangs") {
		t.Errorf("remaining labs: %v, %v", names, err)
	}
	if err := Start(t.Context(), "no/name", fakeConfig(t, "good")); err == nil {
		t.Error("an invalid name is accepted")
	}
}

// signalOnceCreated is a signal to a program that creates a file at its start.
func signalOnceCreated(t *testing.T, file string) os.Signal {
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(file); err == nil {
			return syscall.SIGTERM
		}
		if time.Now().After(end) {
			t.Error("the program has not started")
			return syscall.SIGKILL
		}
	}
}

func TestRemoteRun(t *testing.T) {
	r, _ := start(t, fakeConfig(t, "good"))
	begun := filepath.Join(t.TempDir(), "begun")
	for want, script := range map[int]string{
		0:       "grep -q wire /proc/net/dev",
		7:       "exit 7",
		128 + 9: "kill -9 $$",
	} {
		if code, err := r.Run(t.Context(), []string{"sh", "-c", script}, nil); code != want || err != nil {
			t.Errorf("%s: %d, %v", script, code, err)
		}
	}
	signals := make(chan os.Signal, 1)
	go func() { signals <- signalOnceCreated(t, begun) }()
	if code, err := r.Run(t.Context(), []string{"sh", "-c", "touch " + begun + "; exec sleep 100"}, signals); code != 128+15 || err != nil {
		t.Errorf("%d, %v", code, err)
	}
	if _, err := r.Run(t.Context(), []string{"no-such-program"}, nil); err == nil {
		t.Error("a missing program ran")
	}
}

func TestRunProgram(t *testing.T) {
	needLab(t)
	c := fakeConfig(t, "good")
	c.Guests = 2
	for want, script := range map[int]string{
		9: "grep -q wire /proc/net/dev && exit 9",
		2: fmt.Sprintf(`exit "$%s"`, guestsVar),
	} {
		if code, err := RunProgram(t.Context(), c, []string{"sh", "-c", script}); code != want || err != nil {
			t.Errorf("%s: %d, %v", script, code, err)
		}
	}
	self := must.Get(os.Executable())(t)
	t.Setenv(insiderRole, "1")
	if code, err := RunProgram(t.Context(), c, []string{self}); code != 0 || err != nil {
		t.Errorf("from within: %d, %v", code, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	begun := filepath.Join(t.TempDir(), "begun")
	go func() {
		signalOnceCreated(t, begun)
		cancel()
	}()
	if code, err := RunProgram(ctx, c, []string{"sh", "-c", "touch " + begun + "; exec sleep 100"}); code != 128+15 || err != nil {
		t.Errorf("a terminated program: %d, %v", code, err)
	}
	if _, err := RunProgram(t.Context(), c, []string{"no-such-program"}); err == nil {
		t.Error("a missing program ran")
	}
	if code, _ := RunProgram(t.Context(), fakeConfig(t, "panics"), []string{"true"}); code == 0 {
		t.Error("a program ran without its guest")
	}
}

// insideTest is a program on a lab's network.
func insideTest() error {
	ctx := context.Background()
	r, err := Connect("whatever")
	if err != nil {
		return err
	}
	if out, code, err := r.Output(ctx, 2, Shell("echo here; exit 3")); out != "here\n" || code != 3 || err != nil {
		return fmt.Errorf("%q, %d, %w", out, code, err)
	}
	if _, _, err := r.Output(ctx, 3, Shell("true")); err == nil || !strings.Contains(err.Error(), "there are 1 to 2") {
		return fmt.Errorf("guest 3: %w", err)
	}
	if err := r.Down(ctx); !errors.Is(err, errInsideLab) {
		return fmt.Errorf("down: %w", err)
	}
	if err := r.Restart(ctx, 1); !errors.Is(err, errInsideLab) {
		return fmt.Errorf("restart: %w", err)
	}
	return nil
}

func TestGuestsDieWithLabProcess(t *testing.T) {
	r, name := start(t, fakeConfig(t, "good"))
	info := must.Get(r.Info(t.Context()))(t)
	cache := os.Getenv("XDG_CACHE_HOME")
	if n := countFakes(cache); n != 1 {
		t.Fatalf("%d guests before", n)
	}
	must.Do(t, syscall.Kill(info.PID, syscall.SIGKILL))
	await(t, "the lab is gone", func() bool {
		_, err := Connect(name)
		var gone *daemon.NotUpError
		return errors.As(err, &gone)
	})
	await(t, "its guest is gone", func() bool { return countFakes(cache) == 0 })
}

// countFakes counts the fakes of QEMU whose environment contains a text, such as a test's cache.
func countFakes(text string) (n int) {
	all, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range all {
		env, err := os.ReadFile(f)
		if err == nil && bytes.Contains(env, []byte(fakeQEMU)) && bytes.Contains(env, []byte(text)) {
			n++
		}
	}
	return n
}
