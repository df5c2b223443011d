package perflab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/perf"
)

// settle is how long a host does nothing before its memory is looked at.
const settle = 300 * time.Millisecond

// obey does one order, on a device that is opened for it.
func (c *channel) obey(ctx context.Context, o order, kinds map[string]kind, addr netip.Addr) (v float64, err error) {
	k, ok := kinds[o.Kind]
	if !ok {
		return 0, fmt.Errorf("no device of kind %q", o.Kind)
	}
	dev, err := k.open(addr, o.Offloaded)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	side := &perf.Side{Role: o.Role, Device: dev, Service: k.service, Addr: addr, Exchange: c}
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
