package perflab

import (
	"cmp"
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
	Name  string
	Title string
	// Axis is the name of what Sizes count; empty: Name.
	Axis  string
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
		{Name: "ranks", Title: "MPI ranks, 8 exchanges of 1 KiB with both neighbours", Sizes: powers(16, 4, 4096), run: simulateRanks},
		{Name: "allgather", Axis: "ranks", Title: "MPI ranks, 4 allgathers of 8 B", Sizes: powers(16, 4, 4096), run: simulateCollectives(prepareAllgather)},
		{Name: "allreduce", Axis: "ranks", Title: "MPI ranks, 4 allreduces of 8 B", Sizes: powers(16, 4, 4096), run: simulateCollectives(prepareAllreduce)},
		{Name: "qps", Title: "queue pairs between two hosts, 4 SENDs of 64 B on each", Sizes: []int{100, 1000, 10_000, 30_000, 100_000}, run: simulateQPs},
		{Name: "hosts", Title: "hosts of a fat tree in pairs, 16 SENDs of 1 KiB a pair", Sizes: []int{80, 400, 1000, 4000, 10_000}, run: simulateHosts},
		{Name: "bytes", Title: "bytes of a WRITE, 16 WRITEs", Sizes: powers(64<<10, 8, 256<<20), run: simulateBytes},
		{Name: "messages", Title: "SENDs of 64 B on a queue pair, 64 under way", Sizes: powers(1000, 10, 1_000_000), run: simulateMessages},
		{Name: "packets", Title: "packets of 64 B between two ports without NICs", Sizes: powers(10_000, 10, 10_000_000), run: simulatePackets},
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
	return inRanks(n, stop, func(w *mpi.World) error {
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
}

// inRanks runs a program as n MPI ranks on n hosts.
func inRanks(n int, stop func() error, program func(*mpi.World) error) (simulated, error) {
	return inWorld(mpihost.Fabric{Ranks: n}, stop, func(f mpihost.Fabric) error {
		_, err := mpihost.InWorld(f, func(e *transport.Env) error { return mpi.Run(e, mpi.Options{}, program) })
		return err
	})
}

// simulateCollectives returns a simulation of a collective operation, which n MPI ranks on n hosts call.
// prepare returns it for a rank.
func simulateCollectives(prepare func(w *mpi.World) (operation func() error)) func(n int, stop func() error) (simulated, error) {
	const rounds = 4
	return func(n int, stop func() error) (simulated, error) {
		return inRanks(n, stop, func(w *mpi.World) error {
			operation := prepare(w)
			for range rounds {
				if err := operation(); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

func prepareAllgather(w *mpi.World) func() error {
	local, all := make([]byte, 8), make([]byte, 8*w.Size())
	return func() error { return w.Allgather(local, all) }
}

func prepareAllreduce(w *mpi.World) func() error {
	buf := make([]byte, 8)
	return func() error { return w.Allreduce(mpi.InPlace, buf, mpi.Float64, mpi.Sum) }
}

// axis returns the name of what the sizes count.
func (c *scaleCurve) axis() string { return cmp.Or(c.Axis, c.Name) }

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
