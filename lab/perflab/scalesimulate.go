package perflab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/perf"
	"github.com/fabrictest/fabrictest/verbs"
)

// scaleCurve is a series of simulations that differ in one size.
type scaleCurve struct {
	Name  string // of its axis
	Title string
	Sizes []int
	// run simulates one size, and returns what it has simulated. It calls stop during the simulation,
	// which an error ends.
	run func(size int, stop func() error) (simulated, error)
}

// simulated is what a simulation has done.
type simulated struct {
	Packets uint64        `json:"packets"` // that hosts have sent
	Events  uint64        `json:"events"`
	Virtual time.Duration `json:"virtual_ns"`
}

// scaleCurves returns all curves, with the sizes that are measured by default.
func scaleCurves() []scaleCurve {
	return []scaleCurve{
		{"ranks", "MPI ranks, 8 exchanges of 1 KiB with both neighbours", powers(16, 4, 4096), simulateRanks},
		{"qps", "queue pairs between two hosts, 4 SENDs of 64 B on each", []int{100, 1000, 10_000, 30_000, 100_000}, simulateQPs},
		{"hosts", "hosts of a fat tree in pairs, 16 SENDs of 1 KiB a pair", []int{80, 400, 1000, 4000, 10_000}, simulateHosts},
		{"bytes", "bytes of a WRITE, 16 WRITEs", powers(64<<10, 8, 256<<20), simulateBytes},
		{"messages", "SENDs of 64 B on a queue pair, 64 under way", powers(1000, 10, 1_000_000), simulateMessages},
		{"packets", "packets of 64 B between two ports without NICs", powers(10_000, 10, 10_000_000), simulatePackets},
	}
}

// powers returns first, first*factor and so on, up to last.
func powers(first, factor, last int) (all []int) {
	for n := first; n <= last; n *= factor {
		all = append(all, n)
	}
	return all
}

// simulateRanks runs n MPI ranks on n hosts around a switch. Each exchanges messages with the ranks
// before and after it, so that the work of a rank does not depend on their number.
func simulateRanks(n int, stop func() error) (simulated, error) {
	const rounds, bytes = 8, 1 << 10
	return inWorld(mpihost.Fabric{Ranks: n}, stop, func(f mpihost.Fabric) error {
		_, err := mpihost.InWorld(f, func(e *transport.Env) error {
			return mpi.Run(e, mpi.Options{}, func(w *mpi.World) error {
				before, after := (w.Rank()+n-1)%n, (w.Rank()+1)%n
				out, in := make([]byte, bytes), make([]byte, bytes)
				for range rounds {
					if _, err := w.Sendrecv(out, after, 1, in, before, 1); err != nil {
						return err
					}
					if _, err := w.Sendrecv(out, before, 2, in, after, 2); err != nil {
						return err
					}
				}
				return nil
			})
		})
		return err
	})
}

// simulateQPs sends on n connected queue pairs between two hosts.
func simulateQPs(n int, stop func() error) (simulated, error) {
	const depth = 4 // the number of messages on each queue pair
	return inPairs(mpihost.Fabric{}, 1, perf.Stream{
		Op: verbs.OpSend, Bytes: 64, Load: perf.Load{QPs: n, Depth: depth, Iterations: depth - 1, Warmup: 1, Buffer: 64, Events: true},
	}, stop)
}

// hostsPerLeaf and spines are those of the fat tree, except for its last leaf.
const hostsPerLeaf, spines = 40, 10

// simulateHosts sends between each of the first n/2 hosts of a fat tree and one of the others.
func simulateHosts(n int, stop func() error) (simulated, error) {
	f := mpihost.Fabric{PerHost: 1, Leaves: (n + hostsPerLeaf - 1) / hostsPerLeaf, Spines: spines}
	return inPairs(f, n/2, perf.Stream{
		Op: verbs.OpSend, Bytes: 1 << 10, Load: perf.Load{Depth: 16, Iterations: 15, Warmup: 1, Buffer: 1 << 10, Events: true},
	}, stop)
}

// simulateBytes sends messages of n bytes between two hosts.
func simulateBytes(n int, stop func() error) (simulated, error) {
	return inPairs(mpihost.Fabric{}, 1, perf.Stream{
		Op: verbs.OpRDMAWrite, Bytes: n, Load: perf.Load{Depth: 4, Iterations: 15, Warmup: 1, Buffer: n, Events: true},
	}, stop)
}

// simulateMessages sends n short messages between two hosts. A quarter of those under way is posted
// and signaled together.
func simulateMessages(n int, stop func() error) (simulated, error) {
	return inPairs(mpihost.Fabric{}, 1, perf.Stream{
		Op: verbs.OpSend, Bytes: 64, Load: perf.Load{Depth: 64, PostList: 16, Moderation: 16, Iterations: n - 64, Warmup: 64, Buffer: 1024, Events: true},
	}, stop)
}

// inPairs runs a stream between each of several pairs of processes over RC.
func inPairs(f mpihost.Fabric, pairs int, s perf.Stream, stop func() error) (simulated, error) {
	f.Ranks, f.PerHost = 2*pairs, max(f.PerHost, pairs)
	if f.Leaves > 0 {
		f.PerHost = 1
	}
	return inWorld(f, stop, func(f mpihost.Fabric) error {
		return InPairs(f, perf.ServiceRC, pairs, func(_ int, side *perf.Side) error {
			_, err := s.Run(context.Background(), side)
			return err
		})
	})
}

// inWorld runs a simulation, and counts the packets that its hosts have sent.
func inWorld(f mpihost.Fabric, stop func() error, run func(mpihost.Fabric) error) (s simulated, err error) {
	var world *mpihost.World
	f.Seed, f.Stop, f.Script = 1, stop, func(w *mpihost.World) { world = w }
	err = run(f)
	if world == nil {
		return s, errors.Join(err, errors.New("the simulation has not started"))
	}
	hosts := (f.Ranks + max(1, f.PerHost) - 1) / max(1, f.PerHost)
	for host := range hosts {
		s.Packets += world.Port(host, 0).Stats().Out.Packets
	}
	s.Events, s.Virtual = world.Events(), world.Now()
	return s, err
}

// simulatePackets sends n datagrams between two ports of a switch, eight at a time: each is sent back.
func simulatePackets(n int, stop func() error) (s simulated, err error) {
	w := sim.New(sim.Config{Seed: 1, Stop: stop})
	defer w.Close()
	network, err := sim.NewNet(w, sim.NetConfig{})
	if err != nil {
		return s, err
	}
	var ports [2]*sim.Port
	var addrs [2]netip.Addr
	for i := range ports {
		addrs[i] = netip.MustParseAddr(fmt.Sprintf("fd00::%d", i+1))
		cable := sim.LinkConfig{RateBps: 100e9, Latency: time.Microsecond}
		if ports[i], err = network.Attach(sim.PortConfig{Addrs: addrs[i : i+1], Link: cable}); err != nil {
			return s, err
		}
		e := &echo{port: ports[i], left: n / 2}
		ports[i].OnReadable(e, 0)
	}
	d := link.Datagram{Src: netip.AddrPortFrom(addrs[0], 1), Dst: netip.AddrPortFrom(addrs[1], 1), Payload: make([]byte, 64)}
	for range 8 {
		if _, err := ports[0].Send(0, []link.Datagram{d}); err != nil {
			return s, err
		}
	}
	err = w.Run()
	for _, p := range ports {
		s.Packets += p.Stats().Out.Packets
	}
	s.Events, s.Virtual = w.Events(), time.Duration(w.Now())
	return s, err
}

// echo sends the packets of a port back until it has sent as many as are left.
type echo struct {
	port *sim.Port
	ds   [16]link.Datagram
	left int
}

// HandleEvent implements sim.Handler: packets have arrived.
func (e *echo) HandleEvent(now mono.Time, _ uint64) {
	n, _ := e.port.Recv(now, e.ds[:]) // fails only if the port is closed
	n = min(n, e.left)
	e.left -= n
	for i := range e.ds[:n] {
		d := &e.ds[i]
		d.Src, d.Dst, d.HopLimit = d.Dst, d.Src, 0
	}
	_, _ = e.port.Send(now, e.ds[:n]) // the transmit queue holds all
}
