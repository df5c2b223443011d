package guest

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A program that a kernel starts under this name is a guest's first process. It is
// here, and not in main, because it must hold for every program that brings guests
// up: all of them are their guests' too.
func init() {
	if os.Args[0] != InitPath {
		return
	}
	if os.Getpid() != 1 {
		os.Exit(beTool(os.Args[1:]))
	}
	first()
}

// first is what the first process does. It never returns: a kernel whose first
// process ends panics.
func first() {
	err := bringUp()
	if err != nil {
		fmt.Println(FailedMark + err.Error())
	} else {
		fmt.Printf("%s%.2f s\n", ReadyMark, uptime().Seconds())
	}
	for { // the runtime takes a select without cases for a deadlock if no other goroutine is left
		time.Sleep(time.Hour)
	}
}

// environment is what every program of a guest has.
var environment = map[string]string{
	"PATH": "/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin", "HOME": "/root", "TERM": "linux", "SHELL": "/bin/sh",
}

// bringUp makes a system of a kernel and an unpacked archive.
func bringUp() error {
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
	if err := configure(o); err != nil {
		return err
	}
	// Not yet the devices: who wants to know why they fail must be able to ask.
	l, err := net.Listen("tcp", netip.AddrPortFrom(Control(o.ID).Addr(), Port).String())
	if err != nil {
		return err
	}
	run := func(args ...string) error { return children.run(args...) }
	s := &Server{Start: children.start, Devices: func(all []Device) error { return setDevices(all, run) }}
	go func() {
		fmt.Println("fabrictest-guest: no longer serves:", s.Serve(l))
	}()
	return s.setDevices(o.Devices)
}

// mount is a file system that every Linux has.
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

// prepare gives the system its programs, its name, its modules and its limits.
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
	// Memory is registered by ordinary users too.
	all := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &all); err != nil {
		return fmt.Errorf("limit of locked memory: %w", err)
	}
	for name, value := range map[string]string{
		"kernel/printk":   "4",             // warnings and worse on the console
		"kernel/modprobe": "/bin/modprobe", // the kernel asks for other modules by itself
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
	// Its module is loaded when it is opened.
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

// uptime is how long ago the kernel started.
func uptime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// beTool is the program as a command of the guest: it changes the devices.
func beTool(args []string) int {
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

// exitError says how a program ended that should not have.
func exitError(name string, status syscall.WaitStatus) error {
	if status.Signaled() {
		return fmt.Errorf("%s: killed by signal %d", name, status.Signal())
	}
	if code := status.ExitStatus(); code != 0 {
		return fmt.Errorf("%s: exit code %d", name, code)
	}
	return nil
}
