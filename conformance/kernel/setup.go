package kernel

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/conformance"
)

// Device is what a guest's kernel has on its interface, as lab/kernel/guest names
// it.
type Device string

// The devices that a guest may have.
const (
	RXE    Device = "rxe"     // soft-RoCE
	SIW    Device = "siw"     // soft-iWARP, which uses a CRC only if its peer asks for it
	SIWCRC Device = "siw-crc" // soft-iWARP built to ask for it
)

// device is the guest's part in a case.
func (c Case) device() Device {
	switch {
	case c.Protocol == conformance.RoCE:
		return RXE
	case c.Variant == withCRC:
		return SIWCRC
	default:
		return SIW
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
