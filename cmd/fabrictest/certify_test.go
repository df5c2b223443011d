package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/internal/must"
)

// told is output that can be read while it is written.
type told struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *told) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(b)
}

func (o *told) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// startAgent starts the program as an agent on the loopback interface, and returns where
// it is.
func startAgent(t *testing.T, key string) string {
	t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	out, ended := new(told), make(chan int, 1)
	go func() {
		ended <- execute(ctx, cmdline.GoRun, []string{"agent", "--listen", "127.0.0.1:0", "--key", key, "--emulate", "softiwarp", "--interface", "lo"}, out, out)
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

func TestCertifyOverAnAgent(t *testing.T) {
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
	if code != exitOK || !strings.Contains(out, "Certificate: incomplete: of ") || !strings.Contains(out, "7 pass") {
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
	// A deviation on record that is met is stale, and red.
	known := filepath.Join(dir, "known.yaml")
	must.Do(t, os.WriteFile(known, []byte("mpa/fpdu/length-counts-the-record-only: {reason: made up}\n"), 0o600))
	if code, out, _ = certify("mpa/fpdu", "--device", "emu0", "--out", folder+"2", "--deviations", known); code != exitFailed || !strings.Contains(out, "1 stale") {
		t.Errorf("a stale deviation: exit code %d\n%s", code, out)
	}
	if code, _, stderr = certify("mpa/fpdu", "--device", "other", "--out", folder+"3"); code != exitFailed || !strings.Contains(stderr, `it has ["emu0"]`) {
		t.Errorf("another device: exit code %d, %s", code, stderr)
	}
	if code, _, stderr = certify("mpa/fpdu", "--device", "emu0", "--wire", "udp", "--out", folder+"3"); code != exitFailed || !strings.Contains(stderr, "give tcp or segments") {
		t.Errorf("a wire of RoCE: exit code %d, %s", code, stderr)
	}
	stranger := filepath.Join(dir, "stranger")
	call(t, "agent", "key", stranger)
	if code, _, stderr = call(t, "certify", "--agent", at, "--key", stranger, "--device", "emu0", "--interface", "lo", "--out", folder+"4"); code != exitFailed || !strings.Contains(stderr, "same key") {
		t.Errorf("another key: exit code %d, %s", code, stderr)
	}
}

func TestCertifySigns(t *testing.T) {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("nothing is signed here: ", err)
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
		t.Errorf("verify of a folder with more: exit code %d, %s", code, stderr)
	}
}
