package perflab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/emu/link/shmlink"
	"github.com/fabrictest/fabrictest/internal/process"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/netns/topology"
	"github.com/fabrictest/fabrictest/perf"
)

// testbed is two hosts with a process each.
type testbed struct {
	hosts [2]Host
	pair  *processPair
}

// rawEndpoints returns the endpoints of plain sockets, one in each host's namespace, on its CPU.
func (t *testbed) rawEndpoints() (a, b RawEndpoint) {
	at := func(h Host) RawEndpoint {
		return RawEndpoint{NetNS: h.NetNS, Addr: netip.AddrPortFrom(h.Addr, 0), CPU: h.CPU}
	}
	return at(t.hosts[0]), at(t.hosts[1])
}

// devices has the methods that the perf.Benches of a testbed share, for one kind of device.
type devices struct {
	*testbed
	kind conformance.Protocol
}

// Run implements perf.Bench.
func (d devices) Run(ctx context.Context, p perf.Program, offloaded bool) (float64, error) {
	f, err := d.pair.runBoth(ctx, command{Program: &p, Kind: d.kind, Offloaded: offloaded})
	return f.Value, err
}

// IdleMB implements perf.Bench.
func (d devices) IdleMB(ctx context.Context) (float64, error) {
	f, err := d.pair.runBoth(ctx, command{Idle: true, Kind: d.kind})
	return f.Value, err
}

// overUDP is the perf.Bench of devices over UDP.
type overUDP struct{ devices }

// RawStream implements perf.Bench. The sockets send full GSO packets, as devices do, for all
// message sizes. With copyAndCRC, each side also copies data and computes a CRC.
func (b overUDP) RawStream(_ context.Context, _ int, copyAndCRC bool, d time.Duration) (float64, error) {
	from, to := b.rawEndpoints()
	r, err := RawUDPStream(from, to, RawStreamConfig{Bytes: udpPayload, CopyAndCRC: copyAndCRC, Duration: d})
	return r.Gbps(), err
}

const (
	udpPayload = 4096   // of each datagram of a raw stream
	roceBytes  = 12 + 4 // around a message beyond UDP: BTH and ICRC
)

// RawPingPong implements perf.Bench. Messages are longer by the BTH and ICRC, as on the device.
func (b overUDP) RawPingPong(_ context.Context, bytes int, blocking bool, rounds int) (float64, error) {
	from, to := b.rawEndpoints()
	return RawUDPPingPong(from, to, RawPingPongConfig{Bytes: bytes + roceBytes, Rounds: rounds, Block: blocking})
}

// overTCP is the perf.Bench of devices over TCP.
type overTCP struct{ devices }

// RawStream implements perf.Bench.
func (b overTCP) RawStream(_ context.Context, bytes int, copyAndCRC bool, d time.Duration) (float64, error) {
	from, to := b.rawEndpoints()
	return RawTCPStream(from, to, RawStreamConfig{Bytes: bytes, CopyAndCRC: copyAndCRC, Duration: d})
}

// mpaBytes are the bytes around a message beyond TCP, without padding: MPA length,
// untagged DDP and RDMAP headers, and CRC.
const mpaBytes = 2 + 18 + 4

// RawPingPong implements perf.Bench. Messages are longer by the framing of MPA, DDP and RDMAP.
func (b overTCP) RawPingPong(_ context.Context, bytes int, blocking bool, rounds int) (float64, error) {
	from, to := b.rawEndpoints()
	return RawTCPPingPong(from, to, RawPingPongConfig{Bytes: bytes + mpaBytes, Rounds: rounds, Block: blocking})
}

// plans are the runs by name: each makes its measurements on a testbed, and sends the results.
var plans = map[string]func(ctx context.Context, t *testbed, j *job, send func(labMessage)) error{
	"quick": func(ctx context.Context, t *testbed, j *job, send func(labMessage)) error {
		r, err := perf.RunQuick(ctx, overUDP{devices{t, conformance.RoCE}}, j.options(send))
		return sendResult(r, err, send)
	},
	"iwarp": func(ctx context.Context, t *testbed, j *job, send func(labMessage)) error {
		r, err := perf.RunIWARP(ctx, overTCP{devices{t, conformance.IWARP}}, overUDP{devices{t, conformance.DatagramIWARP}}, j.options(send))
		return sendResult(r, err, send)
	},
	planPrograms: func(ctx context.Context, t *testbed, j *job, send func(labMessage)) error {
		for i := range j.Programs {
			send(labMessage{Doing: j.Programs[i].String(), Done: float64(i) / float64(len(j.Programs))})
			f, err := t.pair.runBoth(ctx, command{Program: &j.Programs[i], Kind: j.Kind, Service: j.Service, Offloaded: j.Offloaded})
			if err != nil {
				return fmt.Errorf("%v: %w", j.Programs[i], err)
			}
			send(labMessage{Figures: &f})
		}
		return nil
	},
}

// sendResult passes the result of a complete run to send, unless the run failed, and returns err.
func sendResult(r *perf.Result, err error, send func(labMessage)) error {
	if err == nil {
		send(labMessage{Result: r})
	}
	return err
}

// options returns the options of a complete run, with its progress as messages.
func (j *job) options(send func(labMessage)) perf.Options {
	return perf.Options{Rounds: j.Rounds, Slice: j.Slice, Progress: func(doing string, done float64) { send(labMessage{Doing: doing, Done: done}) }}
}

// mtu carries packets with 4 KiB of payload.
const mtu = 9000

// measure connects two hosts, each bound to a CPU, runs the job's plan on them, and sends the
// results.
func measure(ctx context.Context, j *job, send func(labMessage)) (err error) {
	plan, ok := plans[j.Plan]
	if !ok {
		return fmt.Errorf("no plan is called %q", j.Plan)
	}
	connect := hostsInNamespaces
	if j.Cable {
		connect = hostsOnCable
	}
	hosts, disconnect, err := connect()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, disconnect()) }()
	hosts[0].CPU, hosts[1].CPU = twoCPUs()
	pair, err := startProcesses(hosts, append([]string{"/proc/self/exe"}, HostArgs...), os.Stderr)
	if err != nil {
		return err
	}
	err = plan(ctx, &testbed{hosts, pair}, j, send)
	if stopErr := pair.stop(); err == nil {
		err = stopErr
	}
	return err
}

// hostsInNamespaces returns two hosts in network namespaces, which are joined by a veth pair.
func hostsInNamespaces() (hosts [2]Host, disconnect func() error, err error) {
	t, err := topology.Pair(topology.Options{Link: topology.Link{MTU: mtu}})
	if err != nil {
		return hosts, nil, err
	}
	fabric, err := netns.Build(t, netns.Options{})
	if err != nil {
		return hosts, nil, err
	}
	const ipv4 = false
	for i := range hosts {
		h := fabric.Host(t.Hosts[i].Name)
		hosts[i] = Host{Name: h.Name, NetNS: h.NS.FD(), Addr: h.NICs[0].Addr(ipv4), Start: h.NS.Start}
	}
	return hosts, fabric.Close, nil
}

// hostsOnCable returns two hosts that are joined by a cable in shared memory.
func hostsOnCable() (hosts [2]Host, disconnect func() error, err error) {
	cable := shmlink.Config{MTU: mtu}
	for i := range hosts {
		hosts[i] = Host{Name: fmt.Sprintf("host%d", i), Addr: netip.AddrFrom16([16]byte{0xfd, 15: byte(i + 1)})}
		cable.Ports = append(cable.Ports, []netip.Addr{hosts[i].Addr})
	}
	f, err := shmlink.Create(cable)
	if err != nil {
		return hosts, nil, err
	}
	for i := range hosts {
		hosts[i].Cable = f
	}
	return hosts, f.Close, nil
}

// twoCPUs returns two CPUs, counted from 1, that this process may use and that are
// not threads of one core; zeros if there are none.
func twoCPUs() (a, b int) {
	cpus, _ := process.UsableCPUs() // none after an error
	for _, cpu := range cpus {
		if cpu != cpus[0] && !siblings(cpus[0], cpu) {
			return cpus[0] + 1, cpu + 1
		}
	}
	return 0, 0
}

// siblings reports whether two CPUs are threads of one core; false if the kernel does not tell.
func siblings(a, b int) bool {
	list, err := os.ReadFile(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", a))
	if err != nil {
		return false
	}
	for part := range strings.SplitSeq(strings.TrimSpace(string(list)), ",") {
		low, high, ok := strings.Cut(part, "-")
		if !ok {
			high = low
		}
		from, err1 := strconv.Atoi(low)
		to, err2 := strconv.Atoi(high)
		if err1 == nil && err2 == nil && from <= b && b <= to {
			return true
		}
	}
	return false
}
