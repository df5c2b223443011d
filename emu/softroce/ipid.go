package softroce

import (
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// FindIPID returns the IPv4 identification for which the ICRC of a received RoCEv2 packet is
// right, for links that do not see it. ok is false if there is none, or if d is not a RoCEv2
// packet.
func FindIPID(d *link.Datagram) (id uint16, ok bool) {
	if d.Dst.Port() != wire.Port || !d.Is4() {
		return 0, false
	}
	return wire.NewICRC(d.Src, d.Dst).CheckAnyIPID(d.Payload)
}
