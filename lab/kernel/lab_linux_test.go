package kernel

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fabrictest/fabrictest/internal/must"
)

func up(t *testing.T, c Config) *Lab {
	t.Helper()
	l := must.Get(Up(t.Context(), c))(t)
	t.Cleanup(func() {
		if err := l.Down(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func TestLabRunsProgramsInGuests(t *testing.T) {
	t.Parallel()
	needLab(t)
	c := fakeConfig(t, "good")
	c.Guests, c.Consoles = 2, t.TempDir()
	l := up(t, c)
	for id := 1; id <= 2; id++ {
		out, code, err := l.Output(t.Context(), id, Shell("echo here; exit 3"))
		if err != nil || code != 3 || out != "here\n" {
			t.Errorf("guest %d: %q, %d, %v", id, out, code, err)
		}
		if text, _, err := l.ConsoleSince(id, 0); err != nil || !strings.Contains(text, "Linux\n") {
			t.Errorf("console of guest %d: %q, %v", id, text, err)
		}
		kept, err := os.ReadFile(filepath.Join(c.Consoles, ConsoleName(id)))
		if err != nil || !strings.Contains(string(kept), ReadyMark) {
			t.Errorf("console of guest %d on disk: %q, %v", id, kept, err)
		}
	}
	path := filepath.Join(t.TempDir(), "file")
	if err := l.Put(t.Context(), 1, File{Path: path, Mode: 0o644, Size: 5, Content: strings.NewReader("hello")}); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(path); string(text) != "hello" {
		t.Errorf("%q, %v", text, err)
	}
	for _, id := range []int{0, 3} {
		if _, _, err := l.Output(t.Context(), id, Shell("true")); err == nil || !strings.Contains(err.Error(), "there are 1 to 2") {
			t.Errorf("guest %d: %v", id, err)
		}
	}
	if err := l.Down(); err != nil {
		t.Error(err)
	}
	if _, _, err := l.Output(t.Context(), 1, Shell("true")); err == nil {
		t.Error("Output succeeds after Down")
	}
}

func TestUpReportsBootFailure(t *testing.T) {
	t.Parallel()
	needLab(t)
	for behaviour, want := range map[string]string{
		"refuses": "guest 1 is off (exit status 1): qemu-system-x86_64: could not set up host tap",
		"panics":  "guest 1 panicked: Kernel panic - not syncing: Fatal exception; the last of its console:\n  [    0.1] Linux\n  [    0.2] BUG",
		"fails":   "guest 1 did not boot: make device siw0: no such thing",
		"hangs":   "guest 1 was not ready after 3s; the last of its console:\n  [    0.1] Linux",
	} {
		t.Run(behaviour, func(t *testing.T) {
			t.Parallel()
			c := fakeConfig(t, behaviour)
			if behaviour == "hangs" {
				c.BootTimeout = 3 * time.Second // time for a line on the console
			}
			_, err := Up(t.Context(), c)
			var e *GuestError
			if !errors.As(err, &e) || e.ID != 1 || e.Panic != (behaviour == "panics") || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v\nwant %q", err, want)
			}
		})
	}
}

func TestUpEndsWithItsContext(t *testing.T) {
	t.Parallel()
	needLab(t)
	why := errors.New("cancelled")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(100*time.Millisecond, func() { cancel(why) })
	if _, err := Up(ctx, fakeConfig(t, "hangs")); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
}

// A panic ends calls to the guest, which Restart boots again.
func TestRestartAfterPanic(t *testing.T) {
	t.Parallel()
	needLab(t)
	l := up(t, fakeConfig(t, "good"))
	waiting := make(chan error)
	r, w := io.Pipe()
	go func() {
		c := Shell("echo begun; sleep 100")
		c.Stdout = w
		_, err := l.Exec(t.Context(), 1, c)
		waiting <- err
	}()
	must.Get(bufio.NewReader(r).ReadString('\n'))(t)
	doomed := l.SetDevices(t.Context(), 1, nil)
	for _, err := range []error{doomed, <-waiting} {
		var e *GuestError
		if !errors.As(err, &e) || !e.Panic || !strings.Contains(e.Reason, "no devices") || !strings.Contains(e.Console, "Kernel panic") {
			t.Errorf("got %v", err)
		}
	}
	var e *GuestError
	if _, _, err := l.Output(t.Context(), 1, Shell("true")); !errors.As(err, &e) || !e.Panic {
		t.Errorf("after the panic: %v", err)
	}
	if s := l.Status()[0]; s.Up || !strings.Contains(s.DownReason, "panicked") {
		t.Errorf("status %+v", s)
	}
	must.Do(t, l.Restart(t.Context(), 1))
	if _, code, err := l.Output(t.Context(), 1, Shell("exit 5")); code != 5 || err != nil {
		t.Errorf("after a restart: %d, %v", code, err)
	}
	if s := l.Status()[0]; !s.Up || s.DownReason != "" {
		t.Errorf("status %+v", s)
	}
	if err := l.Restart(t.Context(), 2); err == nil {
		t.Error("an unknown guest was restarted")
	}
}

func TestInvalidConfigs(t *testing.T) {
	good := fakeConfig(t, "good")
	for want, change := range map[string]func(*Config){
		"guests 10: give 1 to 9":      func(c *Config) { c.Guests = 10 },
		"MTU 100: give 1280 to 9216":  func(c *Config) { c.MTU = 100 },
		"memory 1: give 128":          func(c *Config) { c.Memory = 1 },
		"CPUs 100: give":              func(c *Config) { c.CPUs = 100 },
		"no image to boot":            func(c *Config) { c.Image = nil },
		"unknown accelerator \"xen\"": func(c *Config) { c.Accel = "xen" },
		"instruction counting needs":  func(c *Config) { c.Accel, c.ICount = KVM, true },
		"is one line":                 func(c *Config) { c.KernelArgs = "a\nb" },
		"no device \"mlx5\"":          func(c *Config) { c.Devices = []Device{"mlx5"} },
		"no image of Linux 6.12 with siw": func(c *Config) {
			c.Devices = []Device{SIW}
		},
		"no-such-qemu is missing, for virtual machines": func(c *Config) { c.QEMU = "no-such-qemu" },
	} {
		c := good
		change(&c)
		if _, err := Up(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	var missing *MissingError
	if err := check("no-such-qemu-system"); !errors.As(err, &missing) {
		t.Errorf("got %v", err)
	}
}

// A restarted guest is reached at once, without a failed ARP entry.
func TestControlLinksHaveStaticNeighbours(t *testing.T) {
	t.Parallel()
	needLab(t)
	l := up(t, fakeConfig(t, "silent"))
	err := l.ns.Do(func() error {
		all, err := netlink.NeighList(0, netlink.FAMILY_V4)
		for _, n := range all {
			if n.IP.String() == "10.78.1.2" && n.State == netlink.NUD_PERMANENT && n.HardwareAddr.String() == ControlMAC(1) {
				return nil
			}
		}
		return fmt.Errorf("neighbours are %v, %w", all, err)
	})
	if err != nil {
		t.Error(err)
	}
	// A call to a guest that does not answer ends with its context.
	ctx, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, errors.New("cancelled"))
	defer cancel()
	if _, _, err := l.Output(ctx, 1, Shell("true")); err == nil || !strings.Contains(err.Error(), "guest 1 does not answer: cancelled") {
		t.Errorf("got %v", err)
	}
}

// runLabUntilKilled starts a lab and blocks; the test kills this process.
func runLabUntilKilled(qemu string) error {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		return err
	}
	l, err := Up(context.Background(), Config{QEMU: qemu, Image: &Image{Kernel: file, Archives: []string{file}}})
	os.RemoveAll(dir)
	if err != nil {
		return err
	}
	fmt.Println(l.machines[0].cmd.Process.Pid)
	forever()
	return nil
}

// Guests die with their process, even if SIGKILL ends it.
func TestGuestsDieWithProcess(t *testing.T) {
	t.Parallel()
	needLab(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), ownerRole+"="+fake(t, "good"))
	cmd.Stderr = os.Stderr
	out := must.Get(cmd.StdoutPipe())(t)
	must.Do(t, cmd.Start())
	line := must.Get(bufio.NewReader(out).ReadString('\n'))(t)
	pid := must.Get(strconv.Atoi(strings.TrimSpace(line)))(t)
	if err := syscall.Kill(pid, 0); err != nil {
		t.Fatalf("the guest does not run: %v", err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	await(t, "the guest is gone", func() bool { return !alive(pid) })
}

// alive reports whether a process runs and is not a zombie.
func alive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(text), ") Z ")
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timeout: %s", what)
		}
	}
}

func TestVirtualisationFlag(t *testing.T) {
	for text, want := range map[string]bool{
		"model name : x\nflags\t\t: fpu vme svm avx\n": true, "flags\t\t: fpu vmx\n": true,
		"flags\t\t: fpu vme\n": false, "model name : vmx\nflags : svm_lock\n": false, "": false,
	} {
		if got := virtualisationFlag.MatchString(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestTCGNeedsNoKVM(t *testing.T) {
	for _, c := range []Config{{Accel: TCG}, {ICount: true}} {
		if got, err := chooseAccel(c); got != TCG || err != nil {
			t.Errorf("%+v: %v, %v", c, got, err)
		}
	}
	works := checkKVM()
	got, err := chooseAccel(Config{Accel: KVM})
	if (works == nil) != (err == nil) || (err == nil && got != KVM) {
		t.Errorf("KVM works: %v; chosen: %v, %v", works, got, err)
	}
}
