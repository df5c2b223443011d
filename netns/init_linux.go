package netns

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// firstProcess is the first process of an enclosure. Its arguments are the
// parent's process ID, and the path and the arguments of the program to run.
func firstProcess(args []string) (code int) {
	signals := takeSignals() // the program may be sent one as soon as it is there
	child, err := startProgram(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "enclosure:", err)
		return 127
	}
	go forward(signals, child)
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 126 // no child is left, and the program's end was not seen
		case pid == child && status.Signaled():
			return 128 + int(status.Signal())
		case pid == child:
			return status.ExitStatus()
		}
	}
}

func startProgram(args []string) (pid int, err error) {
	if len(args) < 3 {
		return 0, errors.New("there is no program to run")
	}
	// The parent may have died before the kernel was told to kill us with it.
	// getppid is no help: the parent is outside of our PID namespace.
	if parent := statusField("PPid"); parent != args[0] {
		return 0, fmt.Errorf("the parent process %s is gone", args[0])
	}
	inherited, err := inheritedFiles()
	if err != nil {
		return 0, err
	}
	mountProc()
	pid, err = syscall.ForkExec(args[1], args[2:], &syscall.ProcAttr{
		Env:   append(os.Environ(), enclosedMark+"=1"),
		Files: []uintptr{0, 1, 2}, // others that are inherited stay open by themselves
		Sys:   &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", args[1], err)
	}
	// From now on they are the program's: a pipe that it closes is closed.
	for _, fd := range inherited {
		unix.Close(fd)
	}
	if null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		for fd := range 3 {
			unix.Dup3(null, fd, 0) // the old one stays, which does little harm
		}
	}
	return pid, nil
}

// mountProc gives an enclosure a /proc of its own, in which what runs there sees
// only itself. Where that is not allowed, as in many containers, the outer one
// does for all that we need.
func mountProc() {
	_ = unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
}

// inheritedFiles are the descriptors after standard error that a program would
// inherit.
func inheritedFiles() ([]int, error) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, err
	}
	var fds []int
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd < 3 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			fds = append(fds, fd)
		}
	}
	return fds, nil
}

// takeSignals keeps signals from ending the process. Those of a terminal's keys
// reach the program by themselves. They are taken and not ignored: it would
// inherit that.
func takeSignals() <-chan os.Signal {
	signal.Notify(make(chan os.Signal, 1), unix.SIGINT, unix.SIGQUIT)
	c := make(chan os.Signal, 16)
	signal.Notify(c, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2)
	if !signal.Ignored(unix.SIGHUP) { // else the program inherits that it is, as nohup(1) wants
		signal.Notify(c, unix.SIGHUP)
	}
	return c
}

func forward(signals <-chan os.Signal, pid int) {
	for s := range signals {
		unix.Kill(pid, s.(syscall.Signal)) // it may have ended
	}
}
