package interop

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/lab/kernel/guest"
)

// Provider names the one of our devices that a matrix proves.
type Provider string

// The providers that have a peer in the kernel.
const (
	SoftRoCE  Provider = "softroce"  // against rxe
	SoftIWARP Provider = "softiwarp" // against siw
)

// Providers returns them all.
func Providers() []Provider { return []Provider{SoftRoCE, SoftIWARP} }

// Set makes p the provider that is named; with it a Provider is a command's flag.
func (p *Provider) Set(name string) error {
	if !slices.Contains(Providers(), Provider(name)) {
		return fmt.Errorf("%q is none of %v", name, Providers())
	}
	*p = Provider(name)
	return nil
}

func (p *Provider) String() string { return string(*p) }

// Type is what a flag's help calls it.
func (*Provider) Type() string { return "provider" }

// device is the guest's part in a case.
func (c Case) device() guest.Device {
	switch {
	case c.Provider == SoftRoCE:
		return guest.RXE
	case c.Variant == withCRC:
		return guest.SIWCRC
	default:
		return guest.SIW
	}
}

// Setup is what a case asks of our device.
type Setup struct {
	// Local is the device's address.
	Local netip.Addr
	// CRC makes an iWARP device ask for MPA's CRC. Without it the device must not
	// ask, and use one only if its peer does: siw, which has no option for it,
	// follows us.
	CRC bool
	// SpeakFirst lets an iWARP device that accepts a connection send before the
	// peer's first frame has come, which RFC 5044 forbids (section 7.1.2). The
	// server of ucmatose does so, siw's client does not announce RFC 6581's
	// peer-to-peer model, and so without it both would wait for ever.
	SpeakFirst bool
}

// setup is what a case asks of our device, whose address is local.
func (c Case) setup(local netip.Addr) Setup {
	s := Setup{Local: local}
	if c.Provider == SoftIWARP {
		s.CRC = c.Variant == withCRC
		s.SpeakFirst = c.Tool == UCMatose && c.Role == Server
	}
	return s
}
