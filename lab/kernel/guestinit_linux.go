package kernel

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

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/control"
)

// init runs the guest's init process (PID 1), or the guest's command to set RDMA devices, if this
// program was started under the name InitPath. Every program that boots guests is also their init
// program, so this is not in a main function.
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
		var uptime unix.Timespec
		_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &uptime) // cannot fail on Linux
		fmt.Printf("%s%.2f s\n", ReadyMark, time.Duration(uptime.Nano()).Seconds())
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
// server that executes requests from the control link, and creates the RDMA devices.
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
	l, err := net.Listen("tcp", netip.AddrPortFrom(ControlAddr(o.ID).Addr(), GuestPort).String())
	if err != nil {
		return err
	}
	s := &GuestServer{Start: children.start, Devices: func(all []Device) error { return setDevices(all, children.run) }}
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
func prepare(children *reaper, o BootOptions) error {
	modules, err := os.ReadFile("/etc/modules")
	if err != nil {
		return err
	}
	unlimited := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	const tun = 10<<8 | 200 // major and minor number; opening the device loads its module
	return inOrder(
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

// setSysctl sets a sysctl, whose name has slashes instead of dots.
func setSysctl(name, value string) error { return os.WriteFile("/proc/sys/"+name, []byte(value), 0) }

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

// reap waits for all child processes, for ever, as the init process must. It sends the wait status
// of a process that start has started to the channel that start returned.
func (r *reaper) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if errors.Is(err, unix.ECHILD) {
			r.mu.Lock()
			for len(r.children) == 0 {
				r.started.Wait() // orphans can only come from started children
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
// It implements GuestServer.Start.
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
	// A file and not a pipe, whose reading only cmd.Wait would await: Wait conflicts with reap.
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
	if code := control.ExitCode(<-ended); code != 0 {
		text, _ := os.ReadFile(output.Name())
		return fmt.Errorf("%s: exit code %d: %s", strings.Join(args, " "), code, strings.TrimSpace(string(text)))
	}
	return nil
}

// wireDevice is the interface of the RDMA devices.
const wireDevice = "eth0"

// waitTimeout bounds waits for the kernel.
const waitTimeout = 30 * time.Second

// waitFor polls done until it returns true. After waitTimeout it returns problem as an error.
func waitFor(problem string, done func() bool) error {
	for end := time.Now().Add(waitTimeout); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			return errors.New(problem)
		}
	}
	return nil
}

// configureNetwork sets the loopback interface up, and names and configures the interfaces of the
// wire (the RDMA network) and the control link, which it finds by their Ethernet addresses.
func configureNetwork(o BootOptions) error {
	if err := setLoopbackUp(); err != nil {
		return err
	}
	byMAC := map[string]netlink.Link{}
	if err := waitFor("the network interfaces of the wire and the control link did not appear", func() bool {
		all, err := netlink.LinkList()
		if err != nil {
			return false
		}
		for _, l := range all {
			byMAC[l.Attrs().HardwareAddr.String()] = l
		}
		return byMAC[WireMAC(o.ID)] != nil && byMAC[ControlMAC(o.ID)] != nil
	}); err != nil {
		return err
	}
	const keepMTU = 0
	wire, control := byMAC[WireMAC(o.ID)], byMAC[ControlMAC(o.ID)]
	return inOrder(
		// The kernel may have given each interface the name that the other needs.
		func() error { return netlink.LinkSetName(control, "temporary0") },
		func() error { return netlink.LinkSetName(wire, "temporary1") },
		func() error { return setUpInterface(control, "control0", keepMTU, ControlAddr(o.ID)) },
		func() error { return setUpInterface(wire, wireDevice, o.MTU, Wire4(o.ID), Wire6(o.ID)) })
}

// inOrder calls the steps in order, up to the first error, which it returns.
func inOrder(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// setLoopbackUp sets the loopback interface up.
func setLoopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

// netlinkAddr returns the address and network of an interface for netlink.
func netlinkAddr(a netip.Prefix) *netlink.Addr {
	return &netlink.Addr{IPNet: &net.IPNet{IP: a.Addr().AsSlice(), Mask: net.CIDRMask(a.Bits(), a.Addr().BitLen())}}
}

// setUpInterface names an interface, sets it up and adds addresses: an IPv4 address, and
// optionally an IPv6 address, without which it disables IPv6. An mtu of 0 keeps the MTU.
func setUpInterface(l netlink.Link, name string, mtu int, addrs ...netip.Prefix) error {
	disableIPv6 := "0"
	if len(addrs) < 2 {
		disableIPv6 = "1"
	}
	sysctls := "net/ipv6/conf/" + name + "/"
	steps := []func() error{
		func() error { return netlink.LinkSetName(l, name) },
		func() error { return setSysctl(sysctls+"disable_ipv6", disableIPv6) },
		func() error { return setSysctl(sysctls+"accept_dad", "0") }, // the addresses are unique
		func() error { return setSysctl(sysctls+"accept_ra", "0") },
	}
	if mtu != 0 {
		steps = append(steps, func() error { return netlink.LinkSetMTU(l, mtu) })
	}
	steps = append(steps, func() error { return netlink.LinkSetUp(l) })
	for _, a := range addrs {
		steps = append(steps, func() error { return netlink.AddrAdd(l, netlinkAddr(a)) })
	}
	if err := inOrder(steps...); err != nil {
		return fmt.Errorf("interface %s, MTU %d, addresses %v: %w", name, mtu, addrs, err)
	}
	return nil
}

// setDevices removes all RDMA devices, creates those of the list on the network interface
// wireDevice, and waits until they are active. run runs a program. DevicesFile exists only while
// all devices are active.
func setDevices(all []Device, run func(args ...string) error) error {
	if err := os.RemoveAll(DevicesFile); err != nil {
		return err
	}
	old, err := os.ReadDir("/sys/class/infiniband")
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	for _, d := range old {
		if err := netlink.RdmaLinkDel(d.Name()); err != nil {
			return fmt.Errorf("remove device %s: %w", d.Name(), err)
		}
	}
	for _, d := range all {
		if err := loadModule(d, run); err != nil {
			return err
		}
		if err := netlink.RdmaLinkAdd(d.Name(), d.Kind(), wireDevice); err != nil {
			return fmt.Errorf("create device %s on %s: %w", d.Name(), wireDevice, err)
		}
		state := "/sys/class/infiniband/" + d.Name() + "/ports/1/state"
		if err := waitFor(fmt.Sprintf("device %s does not become active", d.Name()), func() bool {
			text, err := os.ReadFile(state)
			return err == nil && strings.Contains(string(text), "ACTIVE")
		}); err != nil {
			return err
		}
	}
	return os.WriteFile(DevicesFile, []byte(formatDevices(all)+"\n"), 0o644)
}

// loadModule loads the kernel module of a device. run runs a program. siw.ko and siw-crc.ko (which
// requests the MPA CRC) both contain the module siw, so loadModule first unloads a loaded one.
func loadModule(d Device, run func(args ...string) error) error {
	if d.Kind() != string(SIW) {
		return run("/bin/modprobe", "rdma_rxe")
	}
	if err := unix.DeleteModule("siw", 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unload siw: %w", err)
	}
	f, err := os.Open("/lib/siw/" + string(d) + ".ko")
	if err != nil {
		return fmt.Errorf("the guest was booted without siw: boot it with that device: %w", err)
	}
	defer f.Close()
	if err := run("/bin/modprobe", "-a", "iw_cm", "libcrc32c", "crc32c_generic"); err != nil { // finit_module does not load dependencies of siw
		return err
	}
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil {
		return fmt.Errorf("load %s: %w", d, err)
	}
	return nil
}
