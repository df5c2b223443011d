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

// runInit is the init process of an unshared PID namespace: it starts the program, reaps orphans
// and returns the program's exit code. Its arguments are the process ID of the parent, which must
// be alive, and the path and the arguments of the program.
func runInit(args []string) (code int) {
	signals := catchSignals() // before the program starts and may be sent one
	child, err := startProgram(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "init of the namespaces:", err)
		return 127
	}
	go forwardSignals(signals, child)
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 126 // no child is left and the program's exit was missed
		case pid == child && status.Signaled():
			return 128 + int(status.Signal())
		case pid == child:
			return status.ExitStatus()
		}
	}
}

// startProgram starts the program of runInit's arguments, and gives it the inherited
// descriptors and standard streams of this process.
func startProgram(args []string) (pid int, err error) {
	if len(args) < 3 {
		return 0, errors.New("there is no program to run")
	}
	// The parent may have died before Pdeathsig was set. It is outside of this PID namespace,
	// where getppid returns 0; its process ID is still in the /proc of the outer namespace.
	if parent := statusField("PPid"); parent != args[0] {
		return 0, fmt.Errorf("the parent process %s is gone", args[0])
	}
	inherited, err := inheritedFiles()
	if err != nil {
		return 0, err
	}
	mountProc() // hides the outer /proc
	pid, err = syscall.ForkExec(args[1], args[2:], &syscall.ProcAttr{
		Env:   append(os.Environ(), unsharedEnv+"=1"),
		Files: []uintptr{0, 1, 2}, // other inherited descriptors stay open
		Sys:   &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", args[1], err)
	}
	// The program owns the inherited descriptors now: when it closes a pipe,
	// the pipe must be closed.
	for _, fd := range inherited {
		unix.Close(fd)
	}
	if null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		for fd := range 3 {
			unix.Dup3(null, fd, 0) // on failure the old one stays, which is harmless
		}
	}
	return pid, nil
}

// mountProc mounts /proc of the new PID namespace. If a container forbids it, the outer one stays.
func mountProc() {
	_ = unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
}

// inheritedFiles returns the descriptors above 2 that a program would inherit.
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

// catchSignals keeps signals from ending this process, and returns those to forward to the program.
// SIGINT and SIGQUIT of a terminal reach the program directly. Signals are caught instead of
// ignored because the program would inherit ignored signals.
func catchSignals() <-chan os.Signal {
	signal.Notify(make(chan os.Signal, 1), unix.SIGINT, unix.SIGQUIT)
	c := make(chan os.Signal, 16)
	signal.Notify(c, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2)
	if !signal.Ignored(unix.SIGHUP) { // if ignored, as by nohup(1), the program inherits that
		signal.Notify(c, unix.SIGHUP)
	}
	return c
}

// forwardSignals sends signals to the process pid.
func forwardSignals(signals <-chan os.Signal, pid int) {
	for s := range signals {
		unix.Kill(pid, s.(syscall.Signal)) // it may have ended
	}
}
