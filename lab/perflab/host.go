package perflab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/perf"
)

// settleTime is how long a host idles before its memory is measured.
const settleTime = 300 * time.Millisecond

// execute executes one command on a device that is opened for it.
func (c *controlChannel) execute(ctx context.Context, cmd command, kinds map[string]deviceKind, addr netip.Addr) (v float64, err error) {
	k, ok := kinds[cmd.Kind]
	if !ok {
		return 0, fmt.Errorf("no device of kind %q", cmd.Kind)
	}
	dev, err := k.open(addr, cmd.Offloaded)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	side := &perf.Side{Role: cmd.Role, Device: dev, Service: k.service, Addr: addr, Exchange: c}
	switch {
	case cmd.Program != nil:
		return cmd.Program.Run(ctx, side)
	case cmd.Idle:
		return idleMB(ctx, side)
	}
	return 0, errors.New("empty command")
}

// idleMB returns the resident memory of this process with an idle connection.
func idleMB(ctx context.Context, s *perf.Side) (mb float64, err error) {
	err = perf.WithConnection(ctx, s, func() error {
		time.Sleep(settleTime)
		mb, err = perf.ResidentMB()
		return err
	})
	return mb, err
}
