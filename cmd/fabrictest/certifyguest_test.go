package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/kernel"
	"github.com/fabrictest/fabrictest/lab/runner"
	"github.com/fabrictest/fabrictest/verbs/ibv"
)

// Without libibverbs, this program can be no agent, neither here nor in a guest.
func TestAgentNeedsLibibverbs(t *testing.T) {
	if ibv.Linked {
		t.Skip("this program has libibverbs")
	}
	self := must.Get(os.Executable())(t)
	for _, line := range []string{
		"agent --listen localhost:0 --key k", "certify --guest rxe --out o", "certify --guest rxe --out o --agent-program " + self,
	} {
		if code, _, stderr := call(t, strings.Fields(line)...); code != exitUsage || !strings.Contains(stderr, "go build -tags ibverbs") {
			t.Errorf("%s: exit code %d, %s", line, code, stderr)
		}
	}
}

// A command line of a guest's certificate is one that people type.
func TestCommandLinesOfGuests(t *testing.T) {
	for _, c := range []struct{ program, args, want string }{
		{"fabrictest", "--guest rxe --kernel 6.1", "fabrictest certify 'pkt/ip/*' --guest rxe --kernel 6.1 --seed 7 --out FOLDER"},
		{cmdline.GoRun, "--guest siw", "go run -tags ibverbs ./cmd/fabrictest certify 'pkt/ip/*' --guest siw --kernel 6.12 --seed 7 --out FOLDER"},
		{
			cmdline.GoRun, "--guest siw --agent-program p --mtu 1500 --count-instructions --append a=1 --dangerous --level must --case-time 6m",
			"go run ./cmd/fabrictest certify 'pkt/ip/*' --guest siw --kernel 6.12 --agent-program p --mtu 1500 --append a=1 --count-instructions=true --level must --dangerous --case-time 6m0s --seed 7 --out FOLDER",
		},
	} {
		o := &certifyOptions{program: c.program}
		cmd := newCertifyCommand(o)
		must.Do(t, cmd.ParseFlags(strings.Fields(c.args)))
		o.guest.given = givenFlags(cmd, guestFlagNames)
		if got := o.command([]string{"pkt/ip/*"}, 7); got != c.want {
			t.Errorf("%s: got %s, want %s", c.args, got, c.want)
		}
	}
}

// realGuests is what boots real ones: a program that can be an agent in them.
func realGuests(t *testing.T) (program string) {
	t.Helper()
	const variable = "FABRICTEST_KERNEL"
	if os.Getenv(variable) != "1" {
		t.Skipf("no real guests are booted: set %s=1", variable)
	}
	if err := kernel.Check(); err != nil {
		t.Skip("no real guests are booted: ", err)
	}
	dir := must.Get(kernel.DefaultImageDir())(t)
	if _, err := (kernel.ImageCache{Dir: dir}).Find(kernel.Linux61, true); err != nil {
		t.Skip("no real guests are booted: ", err)
	}
	program = filepath.Join(t.TempDir(), "fabrictest")
	out, err := exec.Command("go", "build", "-tags", runner.IbverbsTag, "-o", program, ".").CombinedOutput()
	if err != nil {
		t.Skipf("no real guests are booted: no program that could be an agent in one can be built: %v\n%s", err, out)
	}
	return program
}

func TestCertifyRealGuests(t *testing.T) {
	program := realGuests(t)
	dir := t.TempDir()
	run := func(args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
		return string(out), err
	}
	for kind, id := range map[string]string{"rxe": "pkt/ip/ipv4-carries-a-connection", "siw-crc": "mpa/fpdu/layout"} {
		folder := filepath.Join(dir, kind)
		out, err := run("certify", id, "--guest", kind, "--kernel", "6.1", "--out", folder)
		if err != nil || !strings.Contains(out, "The case passes") {
			t.Errorf("%s: %v\n%s", kind, err, out)
		}
		if out, err := run("certify", "verify", folder); err != nil || !strings.Contains(out, "kernel 6.1") {
			t.Errorf("verify %s: %v\n%s", kind, err, out)
		}
	}
}

// Whoever is switched off by its parent's death leaves no machine behind.
func TestRealGuestsDieWithTheProgram(t *testing.T) {
	program := realGuests(t)
	for _, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT} {
		out := new(told)
		cmd := exec.Command(program, "certify", "rc/psn", "--guest", "rxe", "--kernel", "6.1", "--out", filepath.Join(t.TempDir(), "certificate"))
		cmd.Stdout, cmd.Stderr = out, out
		must.Do(t, cmd.Start())
		for range 1200 {
			if strings.Contains(out.String(), "is ready after") {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if n := len(running(t, program)); n < 2 {
			t.Errorf("%d processes: %s", n, out)
		}
		_ = cmd.Process.Signal(s)
		err := cmd.Wait()
		var exit *exec.ExitError
		if s == syscall.SIGINT && (!errors.As(err, &exit) || exit.ExitCode() != 130) {
			t.Errorf("after Ctrl-C: %v\n%s", err, out)
		}
		for range 100 {
			if len(running(t, program)) == 0 {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if left := running(t, program); len(left) > 0 {
			t.Errorf("after %v there is still %v", s, left)
		}
	}
}

// running are the processes of a program. A guest of its cannot outlive all of them: it is
// in their PID namespace.
func running(t *testing.T, program string) (all []string) {
	t.Helper()
	entries := must.Get(filepath.Glob("/proc/[0-9]*/exe"))(t)
	for _, e := range entries {
		if name, err := os.Readlink(e); err == nil && name == program {
			all = append(all, e)
		}
	}
	return all
}
