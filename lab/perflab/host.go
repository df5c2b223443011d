package perflab

import (
	"context"
	"errors"
	"time"

	"github.com/fabrictest/fabrictest/perf"
	"github.com/fabrictest/fabrictest/verbs"
)

// Opener opens the host's device; with offloaded, one that neither computes
// nor checks the CRC of packets.
type Opener func(offloaded bool) (verbs.Context, error)

// settle is how long a host does nothing before its memory is looked at.
const settle = 300 * time.Millisecond

// obey does one order.
func (c *channel) obey(ctx context.Context, o order, open Opener) (v float64, err error) {
	dev, err := open(o.Offloaded)
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
