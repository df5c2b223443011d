package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/kernel"
	"github.com/fabrictest/fabrictest/lab/runner"
	"github.com/fabrictest/fabrictest/verbs/ibv"
)

// lockedBuffer is output that can be read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *lockedBuffer) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(b)
}

func (o *lockedBuffer) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// startAgent starts the program as an agent on the loopback interface, and returns its address.
func startAgent(t *testing.T, key string) string {
	t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	out, ended := new(lockedBuffer), make(chan int, 1)
	go func() {
		ended <- execute(ctx, cli.GoRun, []string{"agent", "--listen", "127.0.0.1:0", "--key", key, "--emulate", "softiwarp", "--interface", "lo"}, out, out)
	}()
	t.Cleanup(func() {
		cancel(interruptedError{syscall.SIGTERM})
		if code := <-ended; code != exitOK {
			t.Errorf("the agent ended with %d: %s", code, out)
		}
	})
	at := regexp.MustCompile(`Serving emu0 at (\S+)\. `)
	for range 6000 {
		if m := at.FindStringSubmatch(out.String()); m != nil {
			return m[1]
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("no agent: %s", out)
	return ""
}

func TestCertifyThroughAgent(t *testing.T) {
	dir := t.TempDir()
	key, folder := filepath.Join(dir, "key"), filepath.Join(dir, "certificate")
	if code, _, stderr := call(t, "agent", "key", key); code != exitOK {
		t.Fatal(stderr)
	}
	at := startAgent(t, key)
	certify := func(more ...string) (int, string, string) {
		return call(t, append([]string{"certify", "--agent", at, "--key", key, "--interface", "lo"}, more...)...)
	}
	code, out, stderr := certify("mpa/fpdu", "--device", "emu0", "--out", folder)
	if code != exitOK || !strings.Contains(out, "Certificate: incomplete: of ") || !strings.Contains(out, "8 pass") {
		t.Errorf("exit code %d\n%s\n%s", code, out, stderr)
	}
	if code, out, stderr = call(t, "certify", "verify", folder); code != exitOK || !strings.Contains(out, "holds") || !strings.Contains(out, "fabrictest softiwarp") {
		t.Errorf("verify: exit code %d\n%s\n%s", code, out, stderr)
	}
	if code, out, stderr = call(t, "certify", "compare", folder, folder); code != exitOK || !strings.Contains(out, "| MUST | 6 | 2 | ") {
		t.Errorf("compare: exit code %d\n%s\n%s", code, out, stderr)
	}
	captures, err := filepath.Glob(filepath.Join(folder, "captures", "mpa", "fpdu", "*.pcapng"))
	if err != nil || len(captures) < 7 {
		t.Errorf("captures: %v, %v", captures, err)
	}
	must.Do(t, os.Truncate(captures[0], 100))
	if code, _, stderr = call(t, "certify", "verify", folder); code != exitFailed || !strings.Contains(stderr, "has been changed") {
		t.Errorf("verify of a changed folder: exit code %d, %s", code, stderr)
	}
	// A known deviation is stale if its case passes, and fails the run.
	known := filepath.Join(dir, "known.yaml")
	must.Do(t, os.WriteFile(known, []byte("mpa/fpdu/length-counts-the-record-only: {reason: made up}\n"), 0o600))
	if code, out, _ = certify("mpa/fpdu", "--device", "emu0", "--out", folder+"2", "--deviations", known); code != exitFailed || !strings.Contains(out, "1 stale") {
		t.Errorf("a stale deviation: exit code %d\n%s", code, out)
	}
	if code, _, stderr = certify("mpa/fpdu", "--device", "other", "--out", folder+"3"); code != exitFailed || !strings.Contains(stderr, `it has ["emu0"]`) {
		t.Errorf("another device: exit code %d, %s", code, stderr)
	}
	if code, _, stderr = certify("mpa/fpdu", "--device", "emu0", "--wire", "udp", "--out", folder+"3"); code != exitFailed || !strings.Contains(stderr, "give tcp or segments") {
		t.Errorf("--wire udp: exit code %d, %s", code, stderr)
	}
	otherKey := filepath.Join(dir, "other-key")
	call(t, "agent", "key", otherKey)
	if code, _, stderr = call(t, "certify", "--agent", at, "--key", otherKey, "--device", "emu0", "--interface", "lo", "--out", folder+"4"); code != exitFailed || !strings.Contains(stderr, "same key") {
		t.Errorf("another key: exit code %d, %s", code, stderr)
	}
}

func TestCertifySignsCertificate(t *testing.T) {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("ssh-keygen is needed to sign: ", err)
	}
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", in("ssh")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	public := must.Get(os.ReadFile(in("ssh.pub")))(t)
	must.Do(t, os.WriteFile(in("signers"), []byte("lab@example.com "+string(public)), 0o600))
	call(t, "agent", "key", in("key"))
	at := startAgent(t, in("key"))
	code, out, stderr := call(t, "certify", "mpa/fpdu", "--agent", at, "--key", in("key"), "--interface", "lo", "--device", "emu0", "--out", in("certificate"), "--sign", in("ssh"))
	if code != exitOK {
		t.Fatalf("exit code %d\n%s\n%s", code, out, stderr)
	}
	verify := func() (int, string, string) {
		return call(t, "certify", "verify", in("certificate"), "--signers", in("signers"))
	}
	if code, out, stderr = verify(); code != exitOK || !strings.Contains(out, "signed by lab@example.com") {
		t.Errorf("verify: exit code %d\n%s\n%s", code, out, stderr)
	}
	must.Do(t, os.WriteFile(filepath.Join(in("certificate"), "more"), nil, 0o600))
	if code, _, stderr = verify(); code != exitFailed || !strings.Contains(stderr, "more has been added") {
		t.Errorf("verify of a folder with another file: exit code %d, %s", code, stderr)
	}
}

// Without libibverbs, this program cannot be an agent, on this host or in a guest.
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

// The certificate of a guest has the command line that repeats it.
func TestCertifyPrintsGuestCommand(t *testing.T) {
	for _, c := range []struct{ program, args, want string }{
		{"fabrictest", "--guest rxe --kernel 6.1", "fabrictest certify 'pkt/ip/*' --guest rxe --kernel 6.1 --seed 7 --out FOLDER"},
		{cli.GoRun, "--guest siw", "go run -tags ibverbs ./cmd/fabrictest certify 'pkt/ip/*' --guest siw --kernel 6.12 --seed 7 --out FOLDER"},
		{
			cli.GoRun, "--guest siw --agent-program p --mtu 1500 --count-instructions --append a=1 --dangerous --level must --case-time 6m",
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

// buildGuestAgent builds the program with libibverbs, so that it can be the agent in a guest. It
// skips the test if guests cannot be booted, or FABRICTEST_KERNEL is not 1.
func buildGuestAgent(t *testing.T) (program string) {
	t.Helper()
	const variable = "FABRICTEST_KERNEL"
	if os.Getenv(variable) != "1" {
		t.Skipf("no guests are booted: set %s=1", variable)
	}
	if err := kernel.Check(); err != nil {
		t.Skip("no guests are booted: ", err)
	}
	dir := must.Get(kernel.DefaultImageDir())(t)
	if _, err := (kernel.ImageCache{Dir: dir}).Find(kernel.Linux61, true); err != nil {
		t.Skip("no guests are booted: ", err)
	}
	program = filepath.Join(t.TempDir(), "fabrictest")
	out, err := exec.Command("go", "build", "-tags", runner.IbverbsTag, "-o", program, ".").CombinedOutput()
	if err != nil {
		t.Skipf("no guests are booted: the agent cannot be built: %v\n%s", err, out)
	}
	return program
}

func TestCertifyKernelGuests(t *testing.T) {
	program := buildGuestAgent(t)
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

// Guests end when the program is killed or interrupted.
func TestGuestsEndWhenProgramIsKilled(t *testing.T) {
	program := buildGuestAgent(t)
	for _, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT} {
		out := new(lockedBuffer)
		cmd := exec.Command(program, "certify", "rc/psn", "--guest", "rxe", "--kernel", "6.1", "--out", filepath.Join(t.TempDir(), "certificate"))
		cmd.Stdout, cmd.Stderr = out, out
		must.Do(t, cmd.Start())
		for range 1200 {
			if strings.Contains(out.String(), "is ready after") {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if n := len(processesOf(t, program)); n < 2 {
			t.Errorf("%d processes: %s", n, out)
		}
		_ = cmd.Process.Signal(s)
		err := cmd.Wait()
		var exit *exec.ExitError
		if s == syscall.SIGINT && (!errors.As(err, &exit) || exit.ExitCode() != 130) {
			t.Errorf("after Ctrl-C: %v\n%s", err, out)
		}
		for range 100 {
			if len(processesOf(t, program)) == 0 {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if all := processesOf(t, program); len(all) > 0 {
			t.Errorf("after %v, these processes run: %v", s, all)
		}
	}
}

// processesOf returns the processes of a program. Its guests are in their PID namespace, and end
// with the last of them.
func processesOf(t *testing.T, program string) (all []string) {
	t.Helper()
	entries := must.Get(filepath.Glob("/proc/[0-9]*/exe"))(t)
	for _, e := range entries {
		if name, err := os.Readlink(e); err == nil && name == program {
			all = append(all, e)
		}
	}
	return all
}
