package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/lab/kernel/guest"
	"github.com/fabrictest/fabrictest/lab/kernel/image"
)

// Accel is how a guest's processor is made.
type Accel string

// The ways.
const (
	Auto Accel = ""    // KVM where it works, and else emulation
	KVM  Accel = "kvm" // by the machine's own
	TCG  Accel = "tcg" // by emulation, slowly, on any machine
)

// Config is a lab to be. The zero value of everything but Image is a default.
type Config struct {
	Image   *image.Image
	Guests  int            // 1
	Devices []guest.Device // rxe; an empty slice is none
	MTU     int            // of the wire, 1500
	Memory  int            // MiB of each guest, 512
	CPUs    int            // of each guest, 1
	Append  string         // words for the kernels' command line
	Accel   Accel
	// Instructions has time pass in an emulated guest by a nanosecond an instruction,
	// and with the machine's while it sleeps. So its timers are fair to it, and a slow or
	// busy machine makes a run longer, but not another.
	Instructions bool
	// Impair is what packets meet on every guest's link from the start; see Lab.Impair.
	Impair Impairment
	// Seed is that of all chance on the links: the same packets in the same order meet
	// the same fate.
	Seed uint64
	// BootTimeout is how long a guest may take to be ready; 3 minutes.
	BootTimeout time.Duration
	// Consoles is a folder for what guests print, a file each; empty is none: the last
	// of it is kept in memory anyway.
	Consoles string
	// QEMU is the emulator's program, qemu-system-x86_64.
	QEMU string
	// Program is the file that guests run as their first: this program itself, if
	// empty.
	Program string
}

// Limits of a lab.
const (
	minMTU, maxMTU       = 1280, 9216 // IPv6 needs the least
	minMemory, maxMemory = 128, 1 << 20
	maxCPUs              = 64
)

// withDefaults fills in what was left out, and says what cannot be.
func (c Config) withDefaults() (Config, error) {
	set := func(n *int, value int) {
		if *n == 0 {
			*n = value
		}
	}
	set(&c.Guests, 1)
	set(&c.MTU, 1500)
	set(&c.Memory, 512)
	set(&c.CPUs, 1)
	if c.Devices == nil {
		c.Devices = []guest.Device{guest.RXE}
	}
	if c.BootTimeout == 0 {
		c.BootTimeout = 3 * time.Minute
	}
	if c.QEMU == "" {
		c.QEMU = "qemu-system-x86_64"
	}
	return c, c.check()
}

// Check says what cannot be of a lab, before anything is brought up.
func (c Config) Check() error {
	_, err := c.withDefaults()
	return err
}

func (c Config) check() error {
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
		return fmt.Errorf("%q makes no processor: there are %s and %s", c.Accel, KVM, TCG)
	case c.Accel == KVM && c.Instructions:
		return errors.New("a processor of the machine's own does not count instructions: take " + string(TCG))
	case strings.ContainsAny(c.Append, "\n\x00"):
		return errors.New("a kernel's command line is one line")
	case c.Image == nil:
		return errors.New("no image to boot")
	case guest.NeedsSIW(c.Devices) && !c.Image.SIW:
		return &image.NotBuiltError{Series: c.Image.Series, SIW: true, Dir: filepath.Dir(filepath.Dir(c.Image.Kernel))}
	}
	return errors.Join(c.Impair.check(), guest.CheckDevices(c.Devices))
}

// absolute has files found by a process that is elsewhere.
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

// Guest is where a guest is found.
type Guest struct {
	ID      int        `json:"id"`
	IPv4    netip.Addr `json:"ipv4"` // on the wire
	IPv6    netip.Addr `json:"ipv6"`
	MAC     string     `json:"mac"`
	Control netip.Addr `json:"control"` // on its control link
}

func guestAt(id int) Guest {
	return Guest{
		ID: id, IPv4: guest.Wire4(id).Addr(), IPv6: guest.Wire6(id).Addr(), MAC: guest.WireMAC(id), Control: guest.Control(id).Addr(),
	}
}

// Status is how a guest is.
type Status struct {
	Guest
	Up       bool    `json:"up"`
	Why      string  `json:"why,omitempty"` // it is not
	BootSecs float64 `json:"boot_seconds"`
	Link     Link    `json:"link"`
}

// Interfaces of a lab's namespace.
const (
	// WireDevice is the bridge, at which the lab itself has addresses.
	WireDevice = "wire"
	// JudgeDevice is a port of the bridge that has no address, and answers nothing by
	// itself: for packet sockets.
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
