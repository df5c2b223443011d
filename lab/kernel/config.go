package kernel

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
)

// Accel is the virtualisation of a guest's CPU.
type Accel string

// The accelerators of QEMU.
const (
	Auto Accel = ""    // KVM if available, else TCG
	KVM  Accel = "kvm" // hardware virtualisation
	TCG  Accel = "tcg" // emulation: slow, on any machine
)

// Config is the configuration of a lab. Zero values, except Image, mean the
// defaults in the comments.
type Config struct {
	Image      *Image
	Guests     int      // 1
	Devices    []Device // rxe; an empty slice means none
	MTU        int      // of the wire, 1500
	Memory     int      // MiB of each guest, 512
	CPUs       int      // of each guest, 1
	KernelArgs string   // added to the kernel command line
	Accel      Accel
	// ICount advances the time of an emulated guest by a nanosecond per instruction (QEMU -icount).
	// Timers then do not depend on the speed or load of the machine.
	ICount bool
	// Impair is the initial impairment of every guest's link; see Lab.Impair.
	Impair Impairment
	// Seed is the seed of the random impairments.
	Seed uint64
	// BootTimeout is how long a guest may take to boot; 3 minutes.
	BootTimeout time.Duration
	// Consoles is a directory for console logs, one file per guest; empty for none.
	// The end of a console is kept in memory anyway.
	Consoles string
	// QEMU is the program of QEMU, qemu-system-x86_64.
	QEMU string
	// Program is the init program of guests; empty means this program.
	Program string
}

// Limits of a lab.
const (
	minMTU, maxMTU       = 1280, 9216 // the minimum of IPv6
	minMemory, maxMemory = 128, 1 << 20
	maxCPUs              = 64
)

// withDefaults returns a copy with defaults for zero values, and validates it.
func (c Config) withDefaults() (Config, error) {
	c.Guests, c.MTU, c.Memory, c.CPUs = cmp.Or(c.Guests, 1), cmp.Or(c.MTU, 1500), cmp.Or(c.Memory, 512), cmp.Or(c.CPUs, 1)
	c.BootTimeout, c.QEMU = cmp.Or(c.BootTimeout, 3*time.Minute), cmp.Or(c.QEMU, "qemu-system-x86_64")
	if c.Devices == nil {
		c.Devices = []Device{RXE}
	}
	return c, c.validate()
}

// Check validates the configuration.
func (c Config) Check() error {
	_, err := c.withDefaults()
	return err
}

// validate validates a configuration whose defaults are filled in.
func (c Config) validate() error {
	for _, n := range []struct {
		name               string
		value, least, most int
	}{
		{"guests", c.Guests, 1, MaxGuests},
		{"MTU", c.MTU, minMTU, maxMTU},
		{"memory", c.Memory, minMemory, maxMemory},
		{"CPUs", c.CPUs, 1, maxCPUs},
	} {
		if n.value < n.least || n.value > n.most {
			return fmt.Errorf("%s %d: give %d to %d", n.name, n.value, n.least, n.most)
		}
	}
	switch {
	case c.Accel != Auto && c.Accel != KVM && c.Accel != TCG:
		return fmt.Errorf("unknown accelerator %q: there are %s and %s", c.Accel, KVM, TCG)
	case c.Accel == KVM && c.ICount:
		return errors.New("instruction counting needs " + string(TCG))
	case strings.ContainsAny(c.KernelArgs, "\n\x00"):
		return errors.New("a kernel's command line is one line")
	case c.Image == nil:
		return errors.New("no image to boot")
	case NeedsSIW(c.Devices) && !c.Image.SIW:
		cache := filepath.Dir(filepath.Dir(c.Image.Kernel)) // which has a directory for each image
		return &NotBuiltError{Series: c.Image.Series, SIW: true, Dir: cache}
	}
	return errors.Join(c.Impair.check(), CheckDevices(c.Devices))
}

// prepareForProcess validates the configuration, and makes its paths absolute for a process with
// another working directory.
func (c *Config) prepareForProcess() error {
	if _, err := c.withDefaults(); err != nil {
		return err
	}
	for _, path := range []*string{&c.Program, &c.QEMU, &c.Consoles} {
		if !strings.Contains(*path, "/") {
			continue // none, or on PATH
		}
		abs, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		*path = abs
	}
	return nil
}

// Guest has the addresses of a guest.
type Guest struct {
	ID      int        `json:"id"`
	IPv4    netip.Addr `json:"ipv4"` // on the wire
	IPv6    netip.Addr `json:"ipv6"`
	MAC     string     `json:"mac"`
	Control netip.Addr `json:"control"` // on its control link
}

// Status is the state of a guest.
type Status struct {
	Guest
	Up         bool    `json:"up"`
	DownReason string  `json:"why,omitempty"` // why it is not up
	BootSecs   float64 `json:"boot_seconds"`
	Link       Link    `json:"link"`
}

// Interfaces of a lab's namespace.
const (
	// WireDevice is the bridge, on which the lab has addresses.
	WireDevice = "wire"
	// JudgeDevice is a port of the bridge without addresses, for packet sockets.
	// The kernel does not answer there.
	JudgeDevice = "judge"

	judgePort = "judge-port" // its other end
)

// HostIPv4 and HostIPv6 are the lab's own addresses on the wire.
var (
	HostIPv4 = WireHost4.Addr()
	HostIPv6 = WireHost6.Addr()
)

func wirePort(id int) string    { return fmt.Sprintf("wire%d", id) }
func controlPort(id int) string { return fmt.Sprintf("control%d", id) }

// guestLibC is the minor version of glibc in guests, which is that of Debian 12.
const guestLibC = 36 // 2.36

// checkProgram returns an error unless guests can run a program: an x86-64 ELF file that
// needs no later glibc than theirs.
func checkProgram(path string) error {
	if err := cli.CheckFile(path); err != nil {
		return fmt.Errorf("guests cannot run %s: %w", path, err)
	}
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("guests cannot run %s: %w", path, err)
	}
	defer f.Close()
	if f.Machine != elf.EM_X86_64 {
		return fmt.Errorf("guests cannot run %s: it is for %s, and they are x86-64", path, f.Machine)
	}
	needs, err := f.DynamicVersionNeeds()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		return fmt.Errorf("%s: %w", path, err)
	}
	for _, need := range needs {
		for _, v := range need.Needs {
			if n, ok := libCVersion(v.Dep); ok && n > guestLibC {
				return fmt.Errorf("guests cannot run %s: it was linked on a later system, and needs %s of %s, where they have GLIBC_2.%d: "+
					"build it with CGO_ENABLED=0", path, v.Dep, need.Name, guestLibC)
			}
		}
	}
	return nil
}

var libCSymbol = regexp.MustCompile(`^GLIBC_2\.(\d+)`)

// libCVersion returns N of a symbol version GLIBC_2.N, and false for another symbol version.
func libCVersion(symbol string) (minor int, ok bool) {
	m := libCSymbol.FindStringSubmatch(symbol)
	if m == nil {
		return 0, false
	}
	minor, err := strconv.Atoi(m[1])
	return minor, err == nil
}

// writeInitrd writes an initrd: the archives of the image, and one with the init program.
// The image does not contain that program, so that a new program needs no new image.
func writeInitrd(w io.Writer, archives []string, program string) error {
	for _, name := range archives {
		f, err := cli.OpenFile(name)
		if err != nil {
			return err
		}
		_, err = io.Copy(w, f)
		f.Close()
		if err != nil {
			return err
		}
	}
	f, info, err := openFile(program)
	if err != nil {
		return err
	}
	defer f.Close()
	a := NewArchive(w)
	a.AddFile(InitPath, 0o755, info.Size(), f)
	return a.Close()
}

// offloadOptions disables all offloads of virtio-net, so that packets have the MTU
// and valid checksums.
const offloadOptions = "csum=off,gso=off,guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ufo=off,host_tso4=off,host_tso6=off,host_ufo=off"

// kernelArgs are the kernel command line of every guest: quiet, fast to boot, and
// with a panic on an oops, at which QEMU exits.
const kernelArgs = "console=ttyS0 quiet panic=-1 oops=panic mitigations=off nokaslr random.trust_cpu=on tsc=reliable no_timer_check"

// qemuArgs returns the arguments of QEMU for a guest. The guest has two NICs: one on the wire, the
// network of the RDMA devices, and one on a control network, for the connections of the lab.
func qemuArgs(c Config, id int, accel Accel, initrd string) []string {
	processor, acceleration := "max", "tcg,thread=multi"
	var clock []string
	switch {
	case accel == KVM:
		processor, acceleration = "host", "kvm"
	case c.ICount: // virtual time from the number of instructions, which needs a single thread
		acceleration, clock = "tcg", []string{"-icount", "shift=0"}
	}
	o := BootOptions{ID: id, MTU: c.MTU, Devices: c.Devices}
	commandLine := strings.TrimSpace(kernelArgs + " " + o.CommandLine() + " " + c.KernelArgs)
	args := []string{
		"-M", "q35", "-accel", acceleration, "-cpu", processor, "-m", strconv.Itoa(c.Memory), "-smp", strconv.Itoa(c.CPUs),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-kernel", c.Image.Kernel, "-initrd", initrd, "-append", commandLine,
		"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
	}
	for _, nic := range []struct{ name, device, mac string }{
		{"wire", wirePort(id), WireMAC(id)}, {"control", controlPort(id), ControlMAC(id)},
	} {
		args = append(args,
			"-netdev", fmt.Sprintf("tap,id=%s,ifname=%s,script=no,downscript=no", nic.name, nic.device),
			// No boot ROM, which is in another Debian package.
			"-device", fmt.Sprintf("virtio-net-pci,netdev=%s,mac=%s,romfile=,%s", nic.name, nic.mac, offloadOptions))
	}
	return append(args, clock...)
}
