package guest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// reaper waits for all children of the init process, including orphans.
type reaper struct {
	mu       sync.Mutex // held while a process is started, so that it is registered before it is reaped
	children map[int]chan<- syscall.WaitStatus
	started  *sync.Cond // signals that children is not empty
}

func newReaper() *reaper {
	r := &reaper{children: map[int]chan<- syscall.WaitStatus{}}
	r.started = sync.NewCond(&r.mu)
	go r.reap()
	return r
}

// reap waits for children for ever, and passes on the wait status of those that start started.
func (r *reaper) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if errors.Is(err, unix.ECHILD) {
			r.mu.Lock()
			for len(r.children) == 0 {
				r.started.Wait() // without children there are no orphans
			}
			r.mu.Unlock()
			continue
		}
		if err != nil {
			continue // interrupted
		}
		r.mu.Lock()
		ended := r.children[pid]
		delete(r.children, pid)
		r.mu.Unlock()
		if ended != nil {
			ended <- status
		}
	}
}

// start starts a program; see Server.Start.
func (r *reaper) start(cmd *exec.Cmd) (<-chan syscall.WaitStatus, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan syscall.WaitStatus, 1)
	r.children[cmd.Process.Pid] = ended
	r.started.Signal()
	return ended, nil
}

// run runs a program to its end. The error has its output.
func (r *reaper) run(args ...string) error {
	output, err := os.CreateTemp("/tmp", "said-*")
	if err != nil {
		return err
	}
	defer os.Remove(output.Name())
	defer output.Close()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = output, output
	ended, err := r.start(cmd)
	if err != nil {
		return err
	}
	name := strings.Join(args, " ")
	if err := exitError(name, <-ended); err != nil {
		text, _ := os.ReadFile(output.Name())
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(text)))
	}
	return nil
}
