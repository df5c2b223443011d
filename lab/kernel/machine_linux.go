package kernel

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// machine is a guest that was switched on.
type machine struct {
	id      int
	cmd     *exec.Cmd
	console *console
	errs    *limitedBuffer // what QEMU says itself
	ended   chan struct{}  // closed when it is off
	began   time.Time

	mu      sync.Mutex
	stopped string        // by us, and why
	booted  time.Duration // how long it took
}

// boot switches a guest on.
func (l *Lab) boot(id int) (*machine, error) {
	m := &machine{id: id, console: newConsole(), errs: &limitedBuffer{}, ended: make(chan struct{}), began: time.Now()}
	const firstExtraFile = 3
	m.cmd = exec.Command(l.qemu, arguments(l.cfg, id, l.accel, fmt.Sprintf("/proc/self/fd/%d", firstExtraFile))...)
	var file *os.File
	if l.cfg.Consoles != "" {
		var err error
		if file, err = openConsole(l.cfg.Consoles, id); err != nil {
			return nil, err
		}
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		file.Close() // of none it is an error, too
		return nil, err
	}
	// A group of its own: a Ctrl-C is for whoever brought the lab up, not for a guest.
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	m.cmd.Stdout, m.cmd.Stderr, m.cmd.ExtraFiles = writer, m.errs, []*os.File{l.initrd}
	err = l.ns.Start(m.cmd)
	writer.Close()
	if err != nil {
		reader.Close()
		file.Close()
		return nil, fmt.Errorf("start %s: %w", l.qemu, err)
	}
	go func() {
		m.console.follow(reader, file)
		reader.Close()
		file.Close()
		_ = m.cmd.Wait() // its console says more
		close(m.ended)
	}()
	return m, nil
}

// openConsole makes the file of a guest's console; one that is started again goes on
// in the same.
func openConsole(dir string, id int) (*os.File, error) {
	return os.OpenFile(filepath.Join(dir, ConsoleName(id)), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
}

// await waits until the guest is ready.
func (m *machine) await(ctx context.Context, limit time.Duration) error {
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	select {
	case <-m.console.ready:
		m.mu.Lock()
		m.booted = time.Since(m.began)
		m.mu.Unlock()
		return nil
	case why := <-m.console.failed:
		return &GuestError{ID: m.id, Reason: "did not come up: " + why, Console: m.console.last(lastLines)}
	case <-m.ended:
		return m.obituary()
	case <-timeout.C:
		return &GuestError{ID: m.id, Reason: fmt.Sprintf("was not ready after %v", limit), Console: m.console.last(lastLines)}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// lastLines is how much of a console is shown when something went wrong.
const lastLines = 25

// obituary says what became of a guest that is off.
func (m *machine) obituary() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := &GuestError{ID: m.id, Console: m.console.last(lastLines)}
	panicked, said := m.console.panicked(), strings.TrimSpace(m.errs.String())
	switch {
	case m.stopped != "":
		return &GuestError{ID: m.id, Reason: m.stopped}
	case panicked != "":
		e.Reason, e.Panic = "panicked: "+panicked, true
	case said != "":
		e.Reason = fmt.Sprintf("is off (%v): %s", m.cmd.ProcessState, said)
	default:
		e.Reason = fmt.Sprintf("is off (%v)", m.cmd.ProcessState)
	}
	return e
}

// stop switches the guest off and waits until it is.
func (m *machine) stop(why string) {
	m.mu.Lock()
	select {
	case <-m.ended: // by itself: that is what is told of it
	default:
		m.stopped = why
	}
	m.mu.Unlock()
	_ = m.cmd.Process.Kill() // it may have ended
	<-m.ended
}

func (m *machine) bootTime() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.booted
}

func (m *machine) alive() bool {
	select {
	case <-m.ended:
		return false
	default:
		return true
	}
}

// limitedBuffer keeps the beginning of what is written.
type limitedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *limitedBuffer) Write(b []byte) (int, error) {
	const limit = 16 << 10
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Write(b[:min(len(b), max(0, limit-l.b.Len()))])
	return len(b), nil
}

func (l *limitedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
