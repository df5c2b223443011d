package softroce

import (
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// FindIPID finds the IPv4 identification of a RoCEv2 packet that came over a link
// which does not see it: the one for which the packet's ICRC is right. ok is false
// where there is none, or d is no RoCEv2 packet.
func FindIPID(d *link.Datagram) (id uint16, ok bool) {
	if d.Dst.Port() != wire.Port || !d.Is4() {
		return 0, false
	}
	return wire.NewICRC(d.Src, d.Dst).CheckAnyIPID(d.Payload)
}
