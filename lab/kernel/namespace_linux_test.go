package kernel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/kernel/guest"
	"github.com/fabrictest/fabrictest/netns"
)

func TestUpInCurrentNamespace(t *testing.T) {
	needLab(t)
	cmd := exec.Command("/proc/self/exe")
	out := new(strings.Builder)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), hereRole+"="+fake(t, "good")), out, out
	must.Do(t, netns.StartUnshared(cmd))
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if netns.IsUnshared() {
		return // as the tests of an ordinary user are
	}
	if l, err := UpInCurrentNamespace(t.Context(), fakeConfig(t, "good")); err == nil {
		t.Error("the wire is in the machine's own network", l.Down())
	}
	if bare, err := IsEmptyNamespace(); bare || err != nil {
		t.Errorf("the machine's own network is bare: %v, %v", bare, err)
	}
}

// hereTest is what the process does there.
func hereTest(qemu string) (err error) {
	ctx := context.Background()
	file := filepath.Join(filepath.Dir(qemu), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		return err
	}
	cfg := Config{QEMU: qemu, Image: &Image{Kernel: file, Archives: []string{file}}}
	if bare, err := IsEmptyNamespace(); !bare || err != nil {
		return fmt.Errorf("a new enclosure is bare: %v, %w", bare, err)
	}
	l, err := UpInCurrentNamespace(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Down()) }()
	if _, err := net.InterfaceByName(JudgeDevice); err != nil {
		return err
	}
	if err := l.Restart(ctx, 1); err != nil {
		return err
	}
	conn, err := net.Dial("tcp", netip.AddrPortFrom(guest.Control(1).Addr(), guest.Port).String())
	if err != nil {
		return fmt.Errorf("the guest is on our network: %w", err)
	}
	conn.Close()
	if text, n, err := l.ConsoleSince(1, 0); !strings.Contains(text, guest.ReadyMark) || n != int64(len(text)) || err != nil {
		return fmt.Errorf("it printed %q, %d octets, %w", text, n, err)
	}
	if _, _, err := l.ConsoleSince(2, 0); err == nil {
		return errors.New("there is a second guest")
	}
	if other, err := UpInCurrentNamespace(ctx, cfg); err == nil || !strings.Contains(err.Error(), "must be empty") {
		return fmt.Errorf("a second lab in one place: %v, %w", other, err)
	}
	return nil
}
