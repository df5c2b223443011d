package perflab

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/link/udplink/rawbench"
	"github.com/fabrictest/fabrictest/perf"
)

// bench is the perf.Bench of two hosts.
type bench struct {
	hosts [2]Host
	pair  pair
}

// open starts the hosts' processes.
func open(hosts [2]Host, command []string, stderr io.Writer) (*bench, error) {
	b := &bench{hosts: hosts}
	for i := range hosts {
		p, err := start(hosts[i], command, stderr)
		if err != nil {
			_ = b.Close() // the first error counts
			return nil, err
		}
		b.pair[i] = p
	}
	return b, nil
}

// Close ends the hosts' processes.
func (b *bench) Close() error {
	var errs []error
	for _, p := range b.pair {
		if p != nil {
			errs = append(errs, p.stop())
		}
	}
	return errors.Join(errs...)
}

// endpoint is where a bare socket stands in for a host's device.
func (h Host) endpoint() rawbench.Endpoint {
	return rawbench.Endpoint{NetNS: h.NetNS, Addr: netip.AddrPortFrom(h.Addr, 0), CPU: h.CPU}
}

// RawStream is that of perf.Bench.
func (b *bench) RawStream(_ context.Context, work bool, d time.Duration) (float64, error) {
	r, err := rawbench.Stream(b.hosts[0].endpoint(), b.hosts[1].endpoint(), rawbench.StreamConfig{Duration: d, NoCopy: !work, NoCRC: !work})
	return r.Gbps(), err
}

// packetBytes is what a message of 8 bytes is on the wire, beyond UDP: the
// transport's header and CRC around it.
const packetBytes = 8 + 12 + 4

// RawPingPong is that of perf.Bench.
func (b *bench) RawPingPong(_ context.Context, blocking bool, rounds int) (float64, error) {
	r, err := rawbench.PingPong(b.hosts[0].endpoint(), b.hosts[1].endpoint(), rawbench.PingPongConfig{Rounds: rounds, Bytes: packetBytes, Block: blocking})
	return r.HalfMicros(), err
}

// Run is that of perf.Bench.
func (b *bench) Run(ctx context.Context, p perf.Program, offloaded bool) (float64, error) {
	return b.pair.do(ctx, order{Program: &p, Offloaded: offloaded})
}

// IdleMB is that of perf.Bench.
func (b *bench) IdleMB(ctx context.Context) (float64, error) {
	return b.pair.do(ctx, order{Idle: true})
}
