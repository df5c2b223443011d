package perflab

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/dgiwarp"
	"github.com/fabrictest/fabrictest/emu/link/tcplink"
	"github.com/fabrictest/fabrictest/emu/link/udplink"
	"github.com/fabrictest/fabrictest/emu/softiwarp"
	"github.com/fabrictest/fabrictest/emu/softroce"
	"github.com/fabrictest/fabrictest/emu/softroce/engine"
	"github.com/fabrictest/fabrictest/perf"
	"github.com/fabrictest/fabrictest/verbs"
)

// opener opens a host's device; with offloaded, one that neither computes nor
// checks the CRC of packets.
type opener func(addr netip.Addr, offloaded bool) (verbs.Context, error)

// kind is a kind of device that can be measured.
type kind struct {
	open    opener
	service perf.Service
}

// Names of kinds, as orders have them.
const (
	roce      = "softroce"
	iwarp     = "softiwarp"
	datagrams = "dgiwarp"
)

// kinds are all that a host can open.
var kinds = map[string]kind{
	roce:      {softRoCE, perf.Reliable},
	iwarp:     {softIWARP, perf.Streamed},
	datagrams: {dgIWARP, perf.Datagrams},
}

func softRoCE(addr netip.Addr, offloaded bool) (verbs.Context, error) {
	cfg := softroce.Config{Addrs: []netip.Addr{addr}}
	if offloaded {
		cfg.NIC.ICRC = engine.ICRCOffloaded
	}
	return softroce.OnUDP(udplink.Config{}, cfg)
}

func softIWARP(addr netip.Addr, offloaded bool) (verbs.Context, error) {
	cfg := softiwarp.Config{Addrs: []netip.Addr{addr}}
	cfg.NIC.MPA.NoCRC = offloaded
	return softiwarp.OnTCP(tcplink.Config{}, cfg)
}

// dgIWARP opens a device for unreliable datagrams. Their CRC is part of the
// protocol: there is none to leave out.
func dgIWARP(addr netip.Addr, offloaded bool) (verbs.Context, error) {
	if offloaded {
		return nil, fmt.Errorf("datagram-iWARP without CRC: %w", errors.ErrUnsupported)
	}
	return dgiwarp.OnUDP(udplink.Config{}, dgiwarp.Config{Addrs: []netip.Addr{addr}})
}
