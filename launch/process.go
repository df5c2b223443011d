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

// process is a started process, the leader of its process group.
type process struct {
	cmd  *exec.Cmd
	pid  int
	done chan struct{} // closed when the process has been reaped

	mu     sync.Mutex
	reaped bool
}

// startProcess starts cmd, with the function start if it is not nil, on a thread that lives until
// the process has exited, because Pdeathsig would kill the process when the thread ends.
func startProcess(cmd *exec.Cmd, start func(*exec.Cmd) error) (*process, error) {
	if start == nil {
		start = (*exec.Cmd).Start
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	onNewThread(func() {
		err := start(cmd)
		switch {
		case err == nil && cmd.Process == nil:
			err = errors.New("Spec.Start returned without having called cmd.Start")
		case err != nil && cmd.Process != nil:
			// start failed after it had started the process.
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

// reap waits for the process to exit and kills the rest of its process group.
func (p *process) reap() {
	if waitWithoutReaping(p.pid) {
		// Before the leader is reaped, the kernel cannot reuse the group ID.
		p.mu.Lock()
		_ = unix.Kill(-p.pid, unix.SIGKILL)
		_ = p.cmd.Wait() // ProcessState has the exit status
	} else { // the group ID may be reused before Kill
		_ = p.cmd.Wait()
		p.mu.Lock()
		_ = unix.Kill(-p.pid, unix.SIGKILL)
	}
	p.reaped = true
	p.mu.Unlock()
	// Reap the other processes of the group. They are children of this process only if it is a
	// subreaper or PID 1 of a container.
	for err := error(nil); err == nil || errors.Is(err, unix.EINTR); {
		_, err = unix.Wait4(-p.pid, nil, 0, nil)
	}
	close(p.done)
}

// signalGroup sends signals to the process group.
func (p *process) signalGroup(sigs ...unix.Signal) error { return p.signal(-p.pid, sigs...) }

// signal sends signals to pid: -p.pid is the process group. It returns ErrEnded after the reaping.
func (p *process) signal(pid int, sigs ...unix.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return ErrEnded
	}
	for _, sig := range sigs {
		if err := unix.Kill(pid, sig); err != nil {
			return fmt.Errorf("send %s to process %d: %w", unix.SignalName(sig), pid, err)
		}
	}
	return nil
}

// status returns the wait status of a reaped process.
func (p *process) status() syscall.WaitStatus {
	ws, _ := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ws
}

// signalName returns the name of a signal, such as SIGKILL, or its number if it has none.
func signalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", int(s))
}

// onNewThread runs fn on a thread that exits with it: the goroutine exits while locked,
// so the runtime cannot reuse a thread that fn has changed.
func onNewThread(fn func()) {
	go func() {
		runtime.LockOSThread()
		if !onMainThread() {
			fn()
			return
		}
		// The main thread cannot exit, and /proc/self shows its namespaces. Block it
		// until another thread runs fn.
		running := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(running)
			fn()
		}()
		<-running
		runtime.UnlockOSThread()
	}()
}

// socketPair returns the two ends of a control channel. Only local is non-blocking.
func socketPair() (local, remote *os.File, err error) {
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

// exited reports whether the process has been reaped.
func (p *process) exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// exitedWithin waits up to d and reports whether the process has exited.
func (p *process) exitedWithin(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-p.done:
		return true
	case <-t.C:
		return false
	}
}
