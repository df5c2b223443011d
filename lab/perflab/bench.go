package perflab

import (
	"context"
	"io"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/perf"
)

// testbed is two hosts with a process each.
type testbed struct {
	hosts [2]Host
	pair  *processPair
}

// open starts the processes of the hosts.
func open(hosts [2]Host, command []string, stderr io.Writer) (*testbed, error) {
	pair, err := startProcesses(hosts, command, stderr)
	return &testbed{hosts, pair}, err
}

// Close ends the processes of the hosts.
func (m *testbed) Close() error { return m.pair.stop() }

// rawEndpoints returns the endpoints of plain sockets: one in the namespace of each host, on its
// CPU.
func (m *testbed) rawEndpoints() (a, b RawEndpoint) {
	at := func(h Host) RawEndpoint {
		return RawEndpoint{NetNS: h.NetNS, Addr: netip.AddrPortFrom(h.Addr, 0), CPU: h.CPU}
	}
	return at(m.hosts[0]), at(m.hosts[1])
}

// devices has the methods that the perf.Benches of a testbed share, for devices of
// one kind.
type devices struct {
	*testbed
	kind conformance.Protocol
}

// Run implements perf.Bench.
func (d devices) Run(ctx context.Context, p perf.Program, offloaded bool) (float64, error) {
	return d.pair.runBoth(ctx, command{Program: &p, Kind: d.kind, Offloaded: offloaded})
}

// IdleMB implements perf.Bench.
func (d devices) IdleMB(ctx context.Context) (float64, error) {
	return d.pair.runBoth(ctx, command{Idle: true, Kind: d.kind})
}

// overUDP is the perf.Bench of devices over UDP.
type overUDP struct{ devices }

// RawStream implements perf.Bench. The sockets send full GSO packets, as devices
// do, for all message sizes.
func (b overUDP) RawStream(_ context.Context, _ int, work bool, d time.Duration) (float64, error) {
	from, to := b.rawEndpoints()
	r, err := RawUDPStream(from, to, RawUDPStreamConfig{Duration: d, NoCopy: !work, NoCRC: !work})
	return r.Gbps(), err
}

// roceBytes are the bytes around a message beyond UDP: BTH and ICRC.
const roceBytes = 12 + 4

// RawPingPong implements perf.Bench.
func (b overUDP) RawPingPong(_ context.Context, bytes int, blocking bool, rounds int) (float64, error) {
	from, to := b.rawEndpoints()
	r, err := RawUDPPingPong(from, to, RawUDPPingPongConfig{Rounds: rounds, Bytes: bytes + roceBytes, Block: blocking})
	return r.HalfMicros(), err
}

// overTCP is the perf.Bench of devices over TCP.
type overTCP struct{ devices }

// RawStream implements perf.Bench.
func (b overTCP) RawStream(_ context.Context, bytes int, work bool, d time.Duration) (float64, error) {
	from, to := b.rawEndpoints()
	return RawTCPStream(from, to, RawTCPStreamConfig{Bytes: bytes, Work: work, Duration: d})
}

// mpaBytes are the bytes around a message beyond TCP, without padding: MPA length,
// untagged DDP and RDMAP headers, and CRC.
const mpaBytes = 2 + 18 + 4

// RawPingPong implements perf.Bench.
func (b overTCP) RawPingPong(_ context.Context, bytes int, blocking bool, rounds int) (float64, error) {
	from, to := b.rawEndpoints()
	return RawTCPPingPong(from, to, RawTCPPingPongConfig{Bytes: bytes + mpaBytes, Rounds: rounds, Block: blocking})
}
