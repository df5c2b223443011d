package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/lab/kernel/guest"
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
	Guests     int            // 1
	Devices    []guest.Device // rxe; an empty slice means none
	MTU        int            // of the wire, 1500
	Memory     int            // MiB of each guest, 512
	CPUs       int            // of each guest, 1
	KernelArgs string         // added to the kernel command line
	Accel      Accel
	// ICount advances the time of an emulated guest by a nanosecond per instruction
	// (QEMU -icount). Timers then do not depend on the speed or load of the
	// machine.
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

// withDefaults fills in defaults and validates the configuration.
func (c Config) withDefaults() (Config, error) {
	c.Guests, c.MTU, c.Memory, c.CPUs = cmp.Or(c.Guests, 1), cmp.Or(c.MTU, 1500), cmp.Or(c.Memory, 512), cmp.Or(c.CPUs, 1)
	c.BootTimeout, c.QEMU = cmp.Or(c.BootTimeout, 3*time.Minute), cmp.Or(c.QEMU, "qemu-system-x86_64")
	if c.Devices == nil {
		c.Devices = []guest.Device{guest.RXE}
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
		{"guests", c.Guests, 1, guest.MaxGuests},
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
	case guest.NeedsSIW(c.Devices) && !c.Image.SIW:
		return &NotBuiltError{Series: c.Image.Series, SIW: true, Dir: filepath.Dir(filepath.Dir(c.Image.Kernel))}
	}
	return errors.Join(c.Impair.check(), guest.CheckDevices(c.Devices))
}

// absolute makes the paths absolute, for a process with another working directory.
func (c *Config) absolute() error {
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

// guestAt returns the addresses of the guest with a number.
func guestAt(id int) Guest {
	return Guest{
		ID: id, IPv4: guest.Wire4(id).Addr(), IPv6: guest.Wire6(id).Addr(), MAC: guest.WireMAC(id), Control: guest.Control(id).Addr(),
	}
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
	HostIPv4 = guest.WireHost4.Addr()
	HostIPv6 = guest.WireHost6.Addr()
)

func wirePort(id int) string    { return fmt.Sprintf("wire%d", id) }
func controlPort(id int) string { return fmt.Sprintf("control%d", id) }
