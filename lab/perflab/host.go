package perflab

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/link/udplink"
	"github.com/fabrictest/fabrictest/emu/softroce"
	"github.com/fabrictest/fabrictest/emu/softroce/engine"
	"github.com/fabrictest/fabrictest/perf"
	"github.com/fabrictest/fabrictest/verbs"
)

// opener opens a host's device; with offloaded, one that neither computes nor
// checks the CRC of packets.
type opener func(addr netip.Addr, offloaded bool) (verbs.Context, error)

// softRoCE opens soft-RoCE devices.
func softRoCE(addr netip.Addr, offloaded bool) (verbs.Context, error) {
	cfg := softroce.Config{Addrs: []netip.Addr{addr}}
	if offloaded {
		cfg.NIC.ICRC = engine.ICRCOffloaded
	}
	return softroce.OnUDP(udplink.Config{}, cfg)
}

// settle is how long a host does nothing before its memory is looked at.
const settle = 300 * time.Millisecond

// obey does one order.
func (c *channel) obey(ctx context.Context, o order, open func() (verbs.Context, error)) (v float64, err error) {
	dev, err := open()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	side := &perf.Side{Role: o.Role, Device: dev, Exchange: c}
	switch {
	case o.Program != nil:
		return o.Program.Run(ctx, side)
	case o.Idle:
		return idleMB(ctx, side)
	}
	return 0, errors.New("an order to do nothing")
}

// idleMB talks to the other side for a moment, as every program does that then
// waits, and returns what the process holds afterwards.
func idleMB(ctx context.Context, s *perf.Side) (mb float64, err error) {
	err = perf.Connected(ctx, s, func() error {
		time.Sleep(settle)
		mb, err = perf.ResidentMB()
		return err
	})
	return mb, err
}
