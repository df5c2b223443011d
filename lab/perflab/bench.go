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

// machine is two hosts with a process each.
type machine struct {
	hosts [2]Host
	pair  pair
}

// open starts the hosts' processes.
func open(hosts [2]Host, command []string, stderr io.Writer) (*machine, error) {
	m := &machine{hosts: hosts}
	for i := range hosts {
		p, err := start(hosts[i], command, stderr)
		if err != nil {
			_ = m.Close() // the first error counts
			return nil, err
		}
		m.pair[i] = p
	}
	return m, nil
}

// Close ends the hosts' processes.
func (m *machine) Close() error {
	var errs []error
	for _, p := range m.pair {
		if p != nil {
			errs = append(errs, p.stop())
		}
	}
	return errors.Join(errs...)
}

// endpoints are where bare sockets stand in for the hosts' devices.
func (m *machine) endpoints() (a, b rawbench.Endpoint) {
	at := func(h Host) rawbench.Endpoint {
		return rawbench.Endpoint{NetNS: h.NetNS, Addr: netip.AddrPortFrom(h.Addr, 0), CPU: h.CPU}
	}
	return at(m.hosts[0]), at(m.hosts[1])
}

// devices is what the perf.Benches of a machine have in common: devices of one
// kind.
type devices struct {
	*machine
	kind string
}

// Run is that of perf.Bench.
func (d devices) Run(ctx context.Context, p perf.Program, offloaded bool) (float64, error) {
	return d.pair.do(ctx, order{Program: &p, Kind: d.kind, Offloaded: offloaded})
}

// IdleMB is that of perf.Bench.
func (d devices) IdleMB(ctx context.Context) (float64, error) {
	return d.pair.do(ctx, order{Idle: true, Kind: d.kind})
}

// overUDP is the perf.Bench of devices that stand on UDP.
type overUDP struct{ devices }

// RawStream is that of perf.Bench. The bare sockets send what fits into a
// super-packet, as devices do, whatever the size of messages.
func (b overUDP) RawStream(_ context.Context, _ int, work bool, d time.Duration) (float64, error) {
	from, to := b.endpoints()
	r, err := rawbench.Stream(from, to, rawbench.StreamConfig{Duration: d, NoCopy: !work, NoCRC: !work})
	return r.Gbps(), err
}

// roceBytes is what a message has around it on the wire, beyond UDP: the
// transport's header and CRC.
const roceBytes = 12 + 4

// RawPingPong is that of perf.Bench.
func (b overUDP) RawPingPong(_ context.Context, bytes int, blocking bool, rounds int) (float64, error) {
	from, to := b.endpoints()
	r, err := rawbench.PingPong(from, to, rawbench.PingPongConfig{Rounds: rounds, Bytes: bytes + roceBytes, Block: blocking})
	return r.HalfMicros(), err
}

// overTCP is the perf.Bench of devices that stand on TCP.
type overTCP struct{ devices }

// RawStream is that of perf.Bench.
func (b overTCP) RawStream(_ context.Context, bytes int, work bool, d time.Duration) (float64, error) {
	from, to := b.endpoints()
	return RawTCPStream(from, to, RawTCPStreamConfig{Bytes: bytes, Work: work, Duration: d})
}

// mpaBytes is what a message has around it on the wire, beyond TCP, if it needs
// no pad: MPA's length, an untagged DDP header with RDMAP's, and the CRC.
const mpaBytes = 2 + 18 + 4

// RawPingPong is that of perf.Bench.
func (b overTCP) RawPingPong(_ context.Context, bytes int, blocking bool, rounds int) (float64, error) {
	from, to := b.endpoints()
	return RawTCPPingPong(from, to, RawTCPPingPongConfig{Bytes: bytes + mpaBytes, Rounds: rounds, Block: blocking})
}
