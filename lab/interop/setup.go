package interop

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/lab/kernel/guest"
)

// device is the guest's part in a case.
func (c Case) device() guest.Device {
	switch {
	case c.Protocol == conformance.RoCE:
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
	if c.Protocol == conformance.IWARP {
		s.CRC = c.Variant == withCRC
		s.SpeakFirst = c.Tool == UCMatose && c.Role == Server
	}
	return s
}
