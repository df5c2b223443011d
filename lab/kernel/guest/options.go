package guest

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// InitPath is the path of the init program, which the kernel gets by rdinit=.
const InitPath = "/fabrictest-kernel-guest"

// Options are passed to a guest on the kernel command line.
type Options struct {
	ID      int // from 1
	MTU     int // of the wire
	Devices []Device
}

// CommandLine returns the options as kernel parameters.
func (o Options) CommandLine() string {
	return fmt.Sprintf("rdinit=%s fabrictest.id=%d fabrictest.mtu=%d fabrictest.devices=%s", InitPath, o.ID, o.MTU, join(o.Devices))
}

// parseCommandLine parses the options among other kernel parameters.
func parseCommandLine(line string) (o Options, err error) {
	for word := range strings.FieldsSeq(line) {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "fabrictest.id":
			o.ID, err = strconv.Atoi(value)
		case "fabrictest.mtu":
			o.MTU, err = strconv.Atoi(value)
		case "fabrictest.devices":
			o.Devices, err = ParseDevices(value)
		}
		if err != nil {
			return o, fmt.Errorf("%s: %w", word, err)
		}
	}
	if o.ID < 1 || o.ID > MaxGuests || o.MTU == 0 {
		return o, fmt.Errorf("the kernel's command line has no fabrictest.id and fabrictest.mtu: %s", line)
	}
	return o, nil
}

// MaxGuests is the maximum number of guests on one wire.
const MaxGuests = 9

// WireHost4 and WireHost6 are the lab's addresses on the wire.
var (
	WireHost4 = netip.MustParsePrefix("10.77.0.1/24")
	WireHost6 = netip.MustParsePrefix("fd77::1/64")
)

// Wire4 returns a guest's IPv4 address on the wire: 10.77.0.11 for the first.
func Wire4(id int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 77, 0, byte(10 + id)}), WireHost4.Bits())
}

// Wire6 returns a guest's IPv6 address on the wire: fd77::11 for the first.
func Wire6(id int) netip.Prefix {
	a := WireHost6.Addr().As16()
	a[15] = byte(0x10 + id)
	return netip.PrefixFrom(netip.AddrFrom16(a), WireHost6.Bits())
}

// WireMAC returns a guest's Ethernet address on the wire.
func WireMAC(id int) string { return fmt.Sprintf("52:54:00:77:00:%02x", 0x10+id) }

// WireHostMAC is the lab's Ethernet address on the wire.
const WireHostMAC = "52:54:00:77:00:01"

// ControlMAC returns a guest's Ethernet address on its control link.
func ControlMAC(id int) string { return fmt.Sprintf("52:54:00:78:00:%02x", 0x10+id) }

// Control returns a guest's address on its control link.
func Control(id int) netip.Prefix { return controlAddr(id, 2) }

// ControlHost returns the lab's address on a guest's control link.
func ControlHost(id int) netip.Prefix { return controlAddr(id, 1) }

func controlAddr(id int, end byte) netip.Prefix {
	const bits = 24
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 78, byte(id), end}), bits)
}

// Marks that a guest prints on its console.
const (
	// ReadyMark is followed by the seconds since boot.
	ReadyMark = "fabrictest-guest: ready after "
	// FailedMark is followed by the reason.
	FailedMark = "fabrictest-guest: failed: "
)
