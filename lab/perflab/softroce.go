package perflab

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/link/udplink"
	"github.com/fabrictest/fabrictest/emu/softroce"
	"github.com/fabrictest/fabrictest/emu/softroce/engine"
	"github.com/fabrictest/fabrictest/verbs"
)

// SoftRoCE opens soft-RoCE devices on addr.
func SoftRoCE(addr netip.Addr) Opener {
	return func(offloaded bool) (verbs.Context, error) {
		cfg := softroce.Config{Addrs: []netip.Addr{addr}}
		if offloaded {
			cfg.NIC.ICRC = engine.ICRCOffloaded
		}
		return softroce.OnUDP(udplink.Config{}, cfg)
	}
}
