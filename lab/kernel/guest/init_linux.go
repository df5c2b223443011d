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

// This is in init and not in main, because it applies to every program that starts
// guests.
func init() {
	if os.Args[0] != InitPath {
		return
	}
	if os.Getpid() != 1 {
		os.Exit(toolMain(os.Args[1:]))
	}
	initMain()
}

// initMain is the main function of the init process. It does not return: the kernel
// panics if init ends.
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

// boot sets the system up and starts the server.
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
	// Before the devices, so that a failure can be examined.
	l, err := net.Listen("tcp", netip.AddrPortFrom(Control(o.ID).Addr(), Port).String())
	if err != nil {
		return err
	}
	run := func(args ...string) error { return children.run(args...) }
	s := &Server{Start: children.start, Devices: func(all []Device) error { return setDevices(all, run) }}
	go func() {
		fmt.Println("fabrictest-guest: server ended:", s.Serve(l))
	}()
	return s.setDevices(o.Devices)
}

type mount struct{ kind, where, options string }

var mounts = []mount{
	{"proc", "/proc", ""},
	{"sysfs", "/sys", ""},
	{"devtmpfs", "/dev", ""},
	{"devpts", "/dev/pts", ""},
	{"tmpfs", "/dev/shm", "mode=1777"},
	{"tmpfs", "/tmp", "mode=1777"},
	{"tmpfs", "/run", "mode=755"},
}

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

// prepare sets the host name, limits and sysctls, installs busybox, and loads
// modules.
func prepare(children *reaper, o Options) error {
	if err := unix.Sethostname(fmt.Appendf(nil, "guest%d", o.ID)); err != nil {
		return err
	}
	if err := os.MkdirAll("/home/user", 0o755); err != nil {
		return err
	}
	if err := os.Chown("/home/user", 1000, 1000); err != nil {
		return err
	}
	if err := children.run("/bin/busybox", "--install", "-s", "/bin"); err != nil {
		return err
	}
	// Ordinary users register memory, too.
	all := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &all); err != nil {
		return fmt.Errorf("limit of locked memory: %w", err)
	}
	for name, value := range map[string]string{
		"kernel/printk":   "4",             // warnings and worse on the console
		"kernel/modprobe": "/bin/modprobe", // for modules that the kernel requests
	} {
		if err := sysctl(name, value); err != nil {
			return err
		}
	}
	list, err := os.ReadFile("/etc/modules")
	if err != nil {
		return err
	}
	if err := children.run(append([]string{"/bin/modprobe", "-a"}, strings.Fields(string(list))...)...); err != nil {
		return err
	}
	// Opening the device loads its module.
	if err := os.MkdirAll("/dev/net", 0o755); err != nil {
		return err
	}
	const tun = 10<<8 | 200
	if err := unix.Mknod("/dev/net/tun", unix.S_IFCHR|0o666, tun); err != nil && !os.IsExist(err) {
		return err
	}
	return os.Chmod("/dev/net/tun", 0o666)
}

func sysctl(name, value string) error { return os.WriteFile("/proc/sys/"+name, []byte(value), 0) }

// uptime returns the time since boot.
func uptime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// toolMain is the main function of the guest's command that sets the devices.
func toolMain(args []string) int {
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

// exitError returns an error if a program failed.
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
