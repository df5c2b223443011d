package softiwarp

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softiwarp/engine"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
	"github.com/fabrictest/fabrictest/verbs"
)

// randomCase has all random choices of a seed.
type randomCase struct {
	seed   uint64
	rng    *rand.Rand
	link   sim.LinkConfig
	stream sim.StreamConfig
	addrs  [2]netip.Addr
	cfg    [2]Config
	lanes  []*randomLane
	flaps  []sim.Flap
}

// randomLane is one connection and the work requests of its active and its passive side.
type randomLane struct {
	plans  [2][]randomOp
	depth  [2]int // of the send queue
	pause  [2]time.Duration
	shared bool // receives of the second side come from a shared queue
	closer int  // the side that disconnects
}

// randomOp is a work request.
type randomOp struct {
	code  verbs.WROpcode
	n     int
	flags verbs.SendFlags
	sges  int
}

// receives reports whether the request consumes a receive.
func (o *randomOp) receives() bool {
	return o.code == verbs.OpSend || o.code == verbs.OpSendImm || o.code == verbs.OpRDMAWriteImm
}

const (
	maxRandomTime = mono.Time(60 * time.Second)
	randomMaxLen  = 9000
)

func newRandomCase(seed uint64) *randomCase {
	c := &randomCase{seed: seed, rng: rand.New(rand.NewPCG(seed, 0x69574152))}
	c.drawNetwork()
	for i := range c.cfg {
		c.cfg[i] = c.drawDevice()
	}
	// One side supports all kinds of RTR, so that both have one in common. A send needs a receive,
	// which these programs do not post.
	c.cfg[c.rng.IntN(2)].NIC.MPA.RTR = pick(c, mpa.RTRRead, mpa.RTRWrite, mpa.RTRRead|mpa.RTRWrite)
	for range 1 + c.rng.IntN(3) {
		c.lanes = append(c.lanes, c.drawLane())
	}
	return c
}

// oneIn returns true with probability 1/n.
func (c *randomCase) oneIn(n int) bool { return c.rng.IntN(n) == 0 }

func pick[T any](c *randomCase, from ...T) T { return from[c.rng.IntN(len(from))] }

// upTo returns a random duration in (0, d].
func (c *randomCase) upTo(d time.Duration) time.Duration {
	return time.Duration(1 + c.rng.Int64N(int64(d)))
}

// drawNetwork chooses the impairments of streams. Half of all networks break no stream.
func (c *randomCase) drawNetwork() {
	c.addrs = [2]netip.Addr{addrA, addrB}
	if c.oneIn(3) {
		c.addrs = [2]netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}
	}
	c.link = sim.LinkConfig{
		RateBps: pick[uint64](c, 1e9, 10e9, 100e9), Latency: c.upTo(pick(c, time.Microsecond, 50*time.Microsecond)),
		MTU: pick(c, 576, 1280, 1500, 4200, 9000),
	}
	c.stream.BufferBytes = pick(c, 1, 200, 3000, 64_000, 1_000_000)
	c.stream.RetryDelay = time.Millisecond
	share := func(most uint32) uint32 { return c.rng.Uint32N(most + 1) }
	if c.oneIn(2) {
		c.stream.CutPPM = pick[uint32](c, share(100_000), impair.PPM)
	}
	if c.oneIn(2) {
		c.stream.StallPPM, c.stream.StallFor = share(30_000), c.upTo(300*time.Microsecond)
	}
	switch c.rng.IntN(6) {
	case 0:
		c.stream.CorruptPPM = share(20_000)
	case 1:
		c.stream.ResetPPM = share(10_000)
	case 2:
		c.flaps = []sim.Flap{{
			From: mono.Time(c.upTo(time.Millisecond)), Times: 1 + c.rng.IntN(3),
			DownFor: c.upTo(2 * time.Millisecond), UpFor: c.upTo(2 * time.Millisecond),
		}}
	}
}

// breaksStreams reports whether the network may break streams.
func (c *randomCase) breaksStreams() bool { return c.stream.CorruptPPM > 0 || c.stream.ResetPPM > 0 }

func (c *randomCase) drawDevice() Config {
	m := mpa.Config{
		Markers: c.oneIn(3), NoCRC: c.oneIn(3) && c.stream.CorruptPPM == 0, Align: c.oneIn(4),
		QueueFPDUs: pick(c, 0, 1, 2, 5), QueueOctets: pick(c, 0, 1, 5000),
		ReplyTimeout: time.Second, RequestTimeout: time.Second,
	}
	if c.oneIn(5) {
		m.MaxRevision = 1
	}
	return Config{ClientServer: c.oneIn(3), NIC: engine.Config{MPA: m, CloseTimeout: time.Second}}
}

func (c *randomCase) drawLane() *randomLane {
	l := &randomLane{shared: c.oneIn(3), closer: c.rng.IntN(2)}
	codes := []verbs.WROpcode{
		verbs.OpSend, verbs.OpSendImm, verbs.OpRDMAWrite, verbs.OpRDMAWriteImm, verbs.OpRDMARead, verbs.OpAtomicFetchAdd,
	}
	if c.oneIn(2) { // few opcodes, so that the same ones follow each other
		codes = []verbs.WROpcode{pick(c, codes...), pick(c, codes...)}
	}
	most := pick(c, 5, 30, 60)
	longest := pick(c, 1, 60, 2000, randomMaxLen)
	for side := range l.plans {
		l.depth[side] = pick(c, 1, 2, 8, 64)
		if c.oneIn(2) {
			l.pause[side] = c.upTo(20 * time.Microsecond)
		}
		for range c.rng.IntN(most) {
			op := randomOp{code: pick(c, codes...), n: c.rng.IntN(longest + 1), sges: 1 + c.rng.IntN(3)}
			switch op.code {
			case verbs.OpSendImm:
				op.n = 0
			case verbs.OpAtomicFetchAdd:
				op.n, op.sges = 8, 1
			case verbs.OpSend, verbs.OpRDMAWrite, verbs.OpRDMAWriteImm:
				if op.n <= 64 && c.oneIn(2) {
					op.flags |= verbs.SendInline
				}
			}
			if c.oneIn(6) {
				op.flags |= verbs.SendFence
			}
			if c.oneIn(6) {
				op.flags |= verbs.SendSolicited
			}
			l.plans[side] = append(l.plans[side], op)
		}
		// The completion of a final read shows that all earlier requests have arrived.
		l.plans[side] = append(l.plans[side], randomOp{code: verbs.OpRDMARead, n: 1, sges: 1})
	}
	return l
}

func (c *randomCase) String() string {
	s := fmt.Sprintf("seed %d: link %+v, stream %+v, flaps %+v\n", c.seed, c.link, c.stream, c.flaps)
	for i, d := range c.cfg {
		s += fmt.Sprintf("device %c: client-server %v, %+v\n", 'a'+i, d.ClientServer, d.NIC.MPA)
	}
	for i, l := range c.lanes {
		s += fmt.Sprintf("lane %d: %d and %d requests, depths %v, shared receives %v\n", i, len(l.plans[0]), len(l.plans[1]), l.depth, l.shared)
	}
	return s
}

// world builds the network and the devices.
func (c *randomCase) world() (*sim.World, [2]*Device, error) {
	var devices [2]*Device
	w := sim.New(sim.Config{Seed: c.seed, MaxTime: maxRandomTime})
	net, err := sim.NewNet(w, sim.NetConfig{Cable: true, Stream: c.stream})
	if err != nil {
		return nil, devices, err
	}
	for i, name := range []string{"a", "b"} {
		port, err := net.Attach(sim.PortConfig{Name: name, Addrs: c.addrs[i : i+1], Link: c.link})
		if err != nil {
			return nil, devices, err
		}
		cfg := c.cfg[i]
		cfg.Name = name
		if devices[i], err = InWorld(w, port, portNet{port.StreamHost(), port}, cfg); err != nil {
			return nil, devices, err
		}
	}
	for _, flap := range c.flaps {
		net.Port("a").Flap(flap)
	}
	return w, devices, nil
}
