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

// reaper waits for all children of a first process: its own, and orphans, which
// are nobody's.
type reaper struct {
	mu       sync.Mutex // held while a process is started: its end is not taken before it is known
	children map[int]chan<- syscall.WaitStatus
	some     *sync.Cond
}

func newReaper() *reaper {
	r := &reaper{children: map[int]chan<- syscall.WaitStatus{}}
	r.some = sync.NewCond(&r.mu)
	go r.reap()
	return r
}

func (r *reaper) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if errors.Is(err, unix.ECHILD) {
			r.mu.Lock()
			for len(r.children) == 0 {
				r.some.Wait() // orphans are children of somebody that we have started
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
	r.some.Signal()
	return ended, nil
}

// run runs a program to its end. What it says is part of the error.
func (r *reaper) run(args ...string) error {
	said, err := os.CreateTemp("/tmp", "said-*")
	if err != nil {
		return err
	}
	defer os.Remove(said.Name())
	defer said.Close()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = said, said
	ended, err := r.start(cmd)
	if err != nil {
		return err
	}
	name := strings.Join(args, " ")
	if err := exitError(name, <-ended); err != nil {
		text, _ := os.ReadFile(said.Name())
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(text)))
	}
	return nil
}
