package guest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// init runs the guest's init process, or its command, if this program was started under the
// name InitPath in a guest. Every program that starts guests is also their init program, so this
// is not in a main function.
func init() {
	if os.Args[0] != InitPath {
		return
	}
	if os.Getpid() != 1 {
		os.Exit(commandMain(os.Args[1:]))
	}
	initMain()
}

// initMain is the main function of the init process. It boots the guest and prints ReadyMark or
// FailedMark on the console. It does not return: the kernel panics if init ends.
func initMain() {
	err := boot()
	if err != nil {
		fmt.Println(FailedMark + err.Error())
	} else {
		fmt.Printf("%s%.2f s\n", ReadyMark, uptime().Seconds())
	}
	for { // an empty select may be detected as a deadlock
		time.Sleep(time.Hour)
	}
}

// environment is that of all programs in a guest.
var environment = map[string]string{
	"PATH": "/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin", "HOME": "/root", "TERM": "linux", "SHELL": "/bin/sh",
}

// boot mounts file systems, configures the system as the kernel command line says, starts the
// server on the control link, and creates the RDMA devices.
func boot() error {
	if err := mountAll(); err != nil {
		return err
	}
	for key, value := range environment {
		os.Setenv(key, value)
	}
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return err
	}
	o, err := parseCommandLine(string(line))
	if err != nil {
		return err
	}
	children := newReaper()
	if err := prepare(children, o); err != nil {
		return err
	}
	if err := configureNetwork(o); err != nil {
		return err
	}
	// The server starts before the devices, so that users can examine a guest whose devices fail.
	l, err := net.Listen("tcp", netip.AddrPortFrom(Control(o.ID).Addr(), Port).String())
	if err != nil {
		return err
	}
	s := &Server{Start: children.start, Devices: func(all []Device) error { return setDevices(all, children.run) }}
	go func() {
		fmt.Println("fabrictest-guest: server ended:", s.Serve(l))
	}()
	return s.setDevices(o.Devices)
}

// mounts are the file systems of a guest.
var mounts = []struct{ kind, where, options string }{
	{"proc", "/proc", ""},
	{"sysfs", "/sys", ""},
	{"devtmpfs", "/dev", ""},
	{"devpts", "/dev/pts", ""},
	{"tmpfs", "/dev/shm", "mode=1777"},
	{"tmpfs", "/tmp", "mode=1777"},
	{"tmpfs", "/run", "mode=755"},
}

// mountAll creates the mount points and mounts the file systems.
func mountAll() error {
	for _, m := range mounts {
		if err := os.MkdirAll(m.where, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.where, m.kind, 0, m.options); err != nil {
			return fmt.Errorf("mount %s: %w", m.where, err)
		}
	}
	return nil
}

// prepare sets the host name, limits and sysctls, creates a home directory for user 1000 and
// /dev/net/tun, installs busybox, and loads the modules of /etc/modules.
func prepare(children *reaper, o Options) error {
	modules, err := os.ReadFile("/etc/modules")
	if err != nil {
		return err
	}
	unlimited := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	const tun = 10<<8 | 200 // major and minor number; opening the device loads its module
	return InOrder(
		func() error { return unix.Sethostname(fmt.Appendf(nil, "guest%d", o.ID)) },
		func() error { return os.MkdirAll("/home/user", 0o755) },
		func() error { return os.Chown("/home/user", 1000, 1000) },
		func() error { return children.run("/bin/busybox", "--install", "-s", "/bin") },
		func() error { return unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unlimited) }, // ordinary users register memory, too
		func() error { return setSysctl("kernel/printk", "4") },                 // warnings and worse on the console
		func() error { return setSysctl("kernel/modprobe", "/bin/modprobe") },   // for modules that the kernel requests
		func() error {
			return children.run(append([]string{"/bin/modprobe", "-a"}, strings.Fields(string(modules))...)...)
		},
		func() error { return os.MkdirAll("/dev/net", 0o755) },
		func() error {
			if err := unix.Mknod("/dev/net/tun", unix.S_IFCHR|0o666, tun); !errors.Is(err, unix.EEXIST) {
				return err
			}
			return nil
		},
		func() error { return os.Chmod("/dev/net/tun", 0o666) })
}

// setSysctl sets a sysctl, whose name has slashes.
func setSysctl(name, value string) error { return os.WriteFile("/proc/sys/"+name, []byte(value), 0) }

// uptime returns the time since boot; 0 if the kernel does not tell.
func uptime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// commandMain is the main function of the guest's command that sets the RDMA devices, for users in
// the guest. It returns the exit code.
func commandMain(args []string) int {
	err := fmt.Errorf("usage: %s devices rxe|siw|siw-crc|both|none", InitPath)
	if len(args) == 2 && args[0] == "devices" {
		var all []Device
		if all, err = ParseDevices(args[1]); err == nil {
			err = setDevices(all, func(args ...string) error { return exec.Command(args[0], args[1:]...).Run() })
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// exitError returns an error if a program was killed by a signal or has an exit code other than 0.
func exitError(name string, status syscall.WaitStatus) error {
	if status.Signaled() {
		return fmt.Errorf("%s: killed by signal %d", name, status.Signal())
	}
	if code := status.ExitStatus(); code != 0 {
		return fmt.Errorf("%s: exit code %d", name, code)
	}
	return nil
}

// reaper waits for all children of the init process, including orphans.
type reaper struct {
	mu       sync.Mutex                        // held while a process is started, so that it is registered before it is reaped
	children map[int]chan<- syscall.WaitStatus // that start has started, by PID
	started  *sync.Cond                        // signals that children is not empty
}

// newReaper returns a reaper and starts its goroutine.
func newReaper() *reaper {
	r := &reaper{children: map[int]chan<- syscall.WaitStatus{}}
	r.started = sync.NewCond(&r.mu)
	go r.reap()
	return r
}

// reap waits for children for ever, and sends the wait status of those that start has started to
// their channels.
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

// start starts a program, and returns a channel that receives its wait status when it has ended.
// It implements Server.Start.
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

// run runs a program and waits for its end. If the program fails, the error contains its output.
func (r *reaper) run(args ...string) error {
	output, err := os.CreateTemp("/tmp", "output-*")
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
