package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/lab/daemon"
)

// machine is one boot of a guest: a process of QEMU.
type machine struct {
	id         int
	cmd        *exec.Cmd
	console    *console
	qemuStderr *daemon.HeadTail // messages of QEMU
	ended      chan struct{}    // closed when the process has ended
	began      time.Time

	mu      sync.Mutex
	stopped string        // reason, if stop was called
	booted  time.Duration // time to boot
}

// boot starts a guest, and returns before it is ready.
func (l *Lab) boot(id int) (*machine, error) {
	m := &machine{id: id, console: newConsole(), qemuStderr: new(daemon.HeadTail), ended: make(chan struct{}), began: time.Now()}
	const firstExtraFile = 3 // the descriptor of ExtraFiles[0], the initrd
	m.cmd = exec.Command(l.qemu, qemuArgs(l.cfg, id, l.Accel, fmt.Sprintf("/proc/self/fd/%d", firstExtraFile))...)
	var file *os.File // the console log, to which a restarted guest appends; nil without a directory for logs
	if l.cfg.Consoles != "" {
		var err error
		file, err = os.OpenFile(filepath.Join(l.cfg.Consoles, ConsoleName(id)), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		if err != nil {
			return nil, err
		}
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		file.Close() // nil is harmless
		return nil, err
	}
	// A separate group: Ctrl-C must not reach guests.
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	m.cmd.Stdout, m.cmd.Stderr, m.cmd.ExtraFiles = writer, m.qemuStderr, []*os.File{l.initrd}
	err = l.ns.Start(m.cmd)
	writer.Close()
	if err != nil {
		reader.Close()
		file.Close()
		return nil, fmt.Errorf("start %s: %w", l.qemu, err)
	}
	go func() {
		m.console.copyFrom(reader, file)
		reader.Close()
		file.Close()
		_ = m.cmd.Wait() // exitError uses ProcessState
		close(m.ended)
	}()
	return m, nil
}

// waitReady waits until the guest is ready. It returns a GuestError if the guest fails to boot,
// ends, or is not ready in time.
func (m *machine) waitReady(ctx context.Context, timeout time.Duration) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-m.console.ready:
		m.mu.Lock()
		m.booted = time.Since(m.began)
		m.mu.Unlock()
		return nil
	case why := <-m.console.failed:
		return &GuestError{ID: m.id, Reason: "did not boot: " + why, Console: m.console.tail(consoleLines)}
	case <-m.ended:
		return m.exitError()
	case <-timer.C:
		return &GuestError{ID: m.id, Reason: fmt.Sprintf("was not ready after %v", timeout), Console: m.console.tail(consoleLines)}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// consoleLines is the number of console lines in errors.
const consoleLines = 25

// exitError returns a GuestError with the reason why the guest has ended: the lab stopped it, its
// kernel panicked, or QEMU failed.
func (m *machine) exitError() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := &GuestError{ID: m.id, Console: m.console.tail(consoleLines)}
	panicLine, messages := m.console.panicLine(), m.qemuStderr.String()
	switch {
	case m.stopped != "":
		return &GuestError{ID: m.id, Reason: m.stopped}
	case panicLine != "":
		e.Reason, e.Panic = "panicked: "+panicLine, true
	case messages != "":
		e.Reason = fmt.Sprintf("is off (%v): %s", m.cmd.ProcessState, messages)
	default:
		e.Reason = fmt.Sprintf("is off (%v)", m.cmd.ProcessState)
	}
	return e
}

// stop kills the guest and waits until it has ended. why is the reason in exitError.
func (m *machine) stop(why string) {
	m.mu.Lock()
	select {
	case <-m.ended: // keep the original reason
	default:
		m.stopped = why
	}
	m.mu.Unlock()
	_ = m.cmd.Process.Kill() // it may have ended
	<-m.ended
}

// bootTime returns how long the guest took to boot; 0 while it boots.
func (m *machine) bootTime() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.booted
}

// alive reports whether QEMU runs.
func (m *machine) alive() bool {
	select {
	case <-m.ended:
		return false
	default:
		return true
	}
}

// chooseAccel returns KVM if it works and the configuration allows it, else TCG.
func chooseAccel(c Config) (Accel, error) {
	if c.Accel == TCG || c.ICount {
		return TCG, nil
	}
	err := checkKVM()
	switch {
	case err == nil:
		return KVM, nil
	case c.Accel == KVM:
		return "", fmt.Errorf("no KVM: %w; without an accelerator in the configuration, processors are emulated", err)
	}
	return TCG, nil
}

// checkKVM returns an error unless KVM can create a virtual machine on this processor.
func checkKVM() error {
	// Inside some virtual machines, /dev/kvm exists although the processor has no virtualisation;
	// guests run badly with it.
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return err
	}
	if !virtualisationFlag.Match(info) {
		return errors.New("the processor has no virtualisation: neither vmx nor svm is among its flags")
	}
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	const getAPIVersion, createVM, stableVersion = 0xAE00, 0xAE01, 12 // of <linux/kvm.h>
	version, err := unix.IoctlRetInt(int(f.Fd()), getAPIVersion)
	if err != nil {
		return fmt.Errorf("/dev/kvm: %w", err)
	}
	if version != stableVersion {
		return fmt.Errorf("/dev/kvm has version %d, want %d", version, stableVersion)
	}
	vm, err := unix.IoctlRetInt(int(f.Fd()), createVM)
	if err != nil {
		return fmt.Errorf("/dev/kvm cannot create a virtual machine: %w", err)
	}
	return unix.Close(vm)
}

// virtualisationFlag matches the flags of a processor with VT-x or AMD-V in /proc/cpuinfo.
var virtualisationFlag = regexp.MustCompile(`(?m)^flags\s*:.*\b(vmx|svm)\b`)
