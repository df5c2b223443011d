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

// opener opens the device of a host; with offloaded, without CRC.
type opener func(addr netip.Addr, offloaded bool) (verbs.Context, error)

// deviceKind is a kind of device that can be measured.
type deviceKind struct {
	open    opener
	service perf.Service
}

// Names of device kinds in commands.
const (
	roce      = "softroce"
	iwarp     = "softiwarp"
	datagrams = "dgiwarp"
)

// deviceKinds are the kinds that a host can open.
var deviceKinds = map[string]deviceKind{
	roce:      {softRoCE, perf.ServiceRC},
	iwarp:     {softIWARP, perf.ServiceIWARP},
	datagrams: {dgIWARP, perf.ServiceUD},
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

// dgIWARP opens a device for unreliable datagrams, whose CRC is mandatory.
func dgIWARP(addr netip.Addr, offloaded bool) (verbs.Context, error) {
	if offloaded {
		return nil, fmt.Errorf("datagram-iWARP without CRC: %w", errors.ErrUnsupported)
	}
	return dgiwarp.OnUDP(udplink.Config{}, dgiwarp.Config{Addrs: []netip.Addr{addr}})
}
