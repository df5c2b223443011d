package launch

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrEnded is returned for a rank that has ended already.
var ErrEnded = errors.New("the rank has ended")

// process is a started program and the process group that it leads.
type process struct {
	cmd  *exec.Cmd
	pid  int
	done chan struct{} // closed when it has been reaped

	mu     sync.Mutex
	reaped bool
}

// startProcess starts cmd on a thread that stays until the process has ended.
func startProcess(cmd *exec.Cmd, start func(*exec.Cmd) error) (*process, error) {
	if start == nil {
		start = (*exec.Cmd).Start
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	onOwnThread(func() {
		err := start(cmd)
		switch {
		case err == nil && cmd.Process == nil:
			err = errors.New("Spec.Start returned without having called cmd.Start")
		case err != nil && cmd.Process != nil:
			// It runs although Start says otherwise; it must not run on.
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		if err == nil {
			p.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			p.reap()
		}
	})
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// reap waits for the process to end and then ends what it left behind.
func (p *process) reap() {
	if waitExited(p.pid) {
		// While its leader has not been reaped, the group's number cannot be
		// another's.
		p.mu.Lock()
		_ = unix.Kill(-p.pid, unix.SIGKILL)
		_ = p.cmd.Wait() // the error would only repeat what ProcessState says
	} else {
		_ = p.cmd.Wait()
		p.mu.Lock()
		_ = unix.Kill(-p.pid, unix.SIGKILL)
	}
	p.reaped = true
	p.mu.Unlock()
	p.reapOrphans()
	close(p.done)
}

// reapOrphans reaps what was left of the group. It is this process's to do only
// where orphans come to it, as they do to the first process of a container.
func (p *process) reapOrphans() {
	for {
		_, err := unix.Wait4(-p.pid, nil, 0, nil)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// signal sends sig to the process and all of its group.
func (p *process) signal(sigs ...unix.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return ErrEnded
	}
	for _, sig := range sigs {
		if err := unix.Kill(-p.pid, sig); err != nil {
			return fmt.Errorf("send %s to process group %d: %w", unix.SignalName(sig), p.pid, err)
		}
	}
	return nil
}

// quit makes a Go program print its goroutines and exit, even if it is stopped.
func (p *process) quit() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return ErrEnded
	}
	if err := unix.Kill(p.pid, unix.SIGQUIT); err != nil {
		return err
	}
	return unix.Kill(p.pid, unix.SIGCONT)
}

// status is that of a process that has been reaped.
func (p *process) status() syscall.WaitStatus {
	ws, _ := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ws
}

func signalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", int(s))
}

// onOwnThread runs fn on a thread that dies with it: the goroutine exits while
// still locked, so the runtime cannot hand a changed thread to anyone else.
func onOwnThread(fn func()) {
	go func() {
		runtime.LockOSThread()
		if !onMainThread() {
			fn()
			return
		}
		// The main thread cannot end, and /proc/self is a view of it: keep it as it
		// is, and occupied until another thread has taken over.
		taken := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(taken)
			fn()
		}()
		<-taken
		runtime.UnlockOSThread()
	}()
}

// socketPair returns the two ends of a channel. The first does not block.
func socketPair() (ours, theirs *os.File, err error) {
	syscall.ForkLock.RLock()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fds[0])
		unix.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, fmt.Errorf("make a control channel: %w", err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		_ = unix.Close(fds[0])
		_ = unix.Close(fds[1])
		return nil, nil, fmt.Errorf("make a control channel: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control of a rank"), nil
}

// over says whether the process has ended.
func (p *process) over() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// overWithin waits for the process to end, for d at most.
func (p *process) overWithin(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-p.done:
		return true
	case <-t.C:
		return false
	}
}
