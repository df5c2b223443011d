package softroce

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/emu/defects"
	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softroce/engine"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/scenarios/random"
	"github.com/fabrictest/fabrictest/verbs"
)

// randomCase is a network with a workload, drawn from a seed.
type randomCase struct {
	seed    uint64
	rng     *rand.Rand
	cable   bool
	addrs   [2]netip.Addr
	link    sim.LinkConfig
	mtu     verbs.MTU // the largest path MTU the link carries
	up      [2]impair.Config
	flaps   []sim.Flap
	window  int
	work    random.Workload
	policy  [2]engine.Policy
	verbs   [2]defects.VerbDefects
	verbose bool
	net     *sim.Net // once the world is built
}

// maxRandomTime ends a case that hangs. Of thousands, the longest takes a tenth of it.
const maxRandomTime = mono.Time(30 * time.Second)

func newRandomCase(seed uint64) *randomCase {
	c := &randomCase{seed: seed, rng: rand.New(rand.NewPCG(seed, 0x70616972))}
	c.drawNetwork()
	c.drawImpairments()
	c.drawWork()
	return c
}

// oneIn returns true with probability 1/n.
func (c *randomCase) oneIn(n int) bool { return c.rng.IntN(n) == 0 }

func pick[T any](c *randomCase, from ...T) T { return from[c.rng.IntN(len(from))] }

// upTo returns a random duration in (0, d].
func (c *randomCase) upTo(d time.Duration) time.Duration {
	return time.Duration(1 + c.rng.Int64N(int64(d)))
}

func (c *randomCase) drawNetwork() {
	c.cable = c.oneIn(2)
	c.addrs = [2]netip.Addr{netip.MustParseAddr("fd00::a"), netip.MustParseAddr("fd00::b")}
	if c.oneIn(3) {
		c.addrs = [2]netip.Addr{netip.MustParseAddr("10.0.0.10"), netip.MustParseAddr("10.0.0.11")}
	}
	c.mtu = verbs.MTU256 + verbs.MTU(c.rng.IntN(5))
	const headers = link.IPv6HeaderLen + link.UDPHeaderLen + wire.MaxHeaderLen + wire.ICRCLen
	c.link = sim.LinkConfig{
		RateBps: pick[uint64](c, 0, 1e9, 10e9, 25e9, 100e9, 400e9),
		Latency: c.upTo(pick(c, time.Microsecond, 5*time.Microsecond, 50*time.Microsecond)),
		MTU:     c.mtu.Bytes() + headers + c.rng.IntN(100),
		// Small queues make the sending NIC wait, and the switch drop.
		TxQueueBytes: pick(c, 2_000, 20_000, 200_000),
		QueueBytes:   pick(c, 20_000, 200_000, 20_000_000),
	}
	if c.oneIn(3) {
		c.link.ECN = sim.ECNConfig{MinBytes: 2_000, MaxBytes: 20_000, MaxPPM: 100_000}
	}
	c.window = pick(c, 1, 2, 8, 32, 256)
}

// drawImpairments draws the impairments of each direction; a third of the cases have none.
func (c *randomCase) drawImpairments() {
	if c.oneIn(3) {
		return
	}
	for dir := range c.up {
		for range c.rng.IntN(3) {
			c.up[dir].Specs = append(c.up[dir].Specs, c.drawSpec())
		}
	}
	if c.oneIn(4) {
		c.flaps = []sim.Flap{{
			From: mono.Time(c.upTo(2 * time.Millisecond)), Times: 1 + c.rng.IntN(3),
			DownFor: c.upTo(500 * time.Microsecond), UpFor: c.upTo(2 * time.Millisecond), Jitter: c.upTo(100 * time.Microsecond),
		}}
	}
}

func (c *randomCase) drawSpec() impair.Spec {
	var s impair.Spec
	share := func(most uint32) uint32 { return c.rng.Uint32N(most + 1) }
	if c.oneIn(2) {
		s.LossPPM = share(pick[uint32](c, 10_000, 10_000, 50_000, 200_000))
	}
	if c.oneIn(4) {
		s.Burst = impair.GilbertElliott{ToBadPPM: share(20_000), ToGoodPPM: 100_000 + share(400_000), LossBadPPM: share(impair.PPM)}
	}
	if c.oneIn(3) {
		s.DuplicatePPM, s.DuplicateDelay = share(100_000), c.upTo(200*time.Microsecond)
	}
	if c.oneIn(3) {
		s.ReorderPPM, s.ReorderDelay = share(100_000), c.upTo(100*time.Microsecond)
	}
	if c.oneIn(4) {
		s.Delay, s.Jitter, s.KeepOrder = c.upTo(20*time.Microsecond), c.upTo(50*time.Microsecond), c.oneIn(2)
	}
	if c.oneIn(4) {
		s.CorruptPPM = share(50_000)
	}
	if c.oneIn(4) {
		s.TruncatePPM = share(30_000)
	}
	if c.oneIn(3) {
		s.MarkPPM = share(200_000)
	}
	if c.oneIn(3) {
		s.From = mono.Time(c.upTo(time.Millisecond))
		s.Until = s.From.Add(c.upTo(5 * time.Millisecond))
	}
	return s
}

// tolerance returns the faults of the network that the checks must tolerate.
func (c *randomCase) tolerance() random.Network {
	n := random.Network{Loses: len(c.flaps) > 0 || c.link.QueueBytes < 1_000_000}
	lossPPM, bursts := uint32(0), false
	for _, cfg := range c.up {
		for _, s := range cfg.Specs {
			lossPPM += s.LossPPM + s.CorruptPPM + s.TruncatePPM
			bursts = bursts || s.Burst.LossBadPPM > 0
			n.Duplicates = n.Duplicates || s.DuplicatePPM > 0
			// The end of a delay reorders packets, too.
			n.Reorders = n.Reorders || s.ReorderPPM > 0 || s.Jitter > 0 && (!s.KeepOrder || s.Until > 0)
		}
	}
	// Reordered or duplicated packets lose an unreliable message of several packets.
	n.Loses = n.Loses || lossPPM > 0 || bursts || n.Duplicates || n.Reorders
	// Below 6 % loss seven retries succeed: 0.06^8 is less than one in a billion.
	n.GivesUp = len(c.flaps) > 0 || bursts || lossPPM > 60_000
	return n
}

// world builds the network and the devices.
func (c *randomCase) world() (*sim.World, [2]*Device, error) {
	var devices [2]*Device
	w := sim.New(sim.Config{Seed: c.seed, MaxTime: maxRandomTime})
	net, err := sim.NewNet(w, sim.NetConfig{Cable: c.cable})
	if err != nil {
		return nil, devices, err
	}
	for i, name := range []string{"a", "b"} {
		port, err := net.Attach(sim.PortConfig{Name: name, Addrs: c.addrs[i : i+1], Link: c.link, Up: c.up[i]})
		if err != nil {
			return nil, devices, err
		}
		cfg := Config{Name: name}
		cfg.NIC.WindowPackets, cfg.NIC.Policy, cfg.NIC.LineRateBps = c.window, c.policy[i], c.link.RateBps
		cfg.NIC.SparseAckReq = c.seed%2 == 0
		if devices[i], err = InWorld(w, port, port, cfg); err != nil {
			return nil, devices, err
		}
	}
	if c.verbose {
		net.SetTap(logPacket)
	}
	c.net = net
	for _, flap := range c.flaps {
		net.Port("a").Flap(flap)
	}
	return w, devices, nil
}

// trace returns a function that logs a replayed case; nil unless verbose.
func (c *randomCase) trace(w *sim.World) func(string, ...any) {
	if !c.verbose {
		return nil
	}
	return func(format string, args ...any) {
		fmt.Fprintf(os.Stdout, "%12v "+format+"\n", append([]any{time.Duration(w.Now())}, args...)...)
	}
}

// logPacket logs a packet.
func logPacket(now mono.Time, port *sim.Port, dir sim.Direction, d *link.Datagram) {
	arrow := map[sim.Direction]string{sim.Out: "->", sim.In: "<-"}[dir]
	var p wire.Packet
	if err := p.Parse(d.Payload); err != nil {
		fmt.Fprintf(os.Stdout, "%12v %s %s %d bytes: %v\n", time.Duration(now), port.Name(), arrow, len(d.Payload), err)
		return
	}
	line := fmt.Sprintf("%12v %s %s %v qp %#x psn %d", time.Duration(now), port.Name(), arrow, p.BTH.Opcode, p.BTH.DestQP, p.BTH.PSN)
	if info, ok := p.BTH.Opcode.Info(); ok {
		if info.Headers.Has(wire.HasAETH) {
			line += fmt.Sprintf(" syndrome %v msn %d", p.AETH.Syndrome, p.AETH.MSN)
		}
		if info.Headers.Has(wire.HasRETH) {
			line += fmt.Sprintf(" va %#x len %d", p.RETH.VA, p.RETH.DMALen)
		}
	}
	if len(p.Payload) > 0 {
		line += fmt.Sprintf(" payload %d", len(p.Payload))
	}
	if p.BTH.AckReq {
		line += " ackreq"
	}
	fmt.Fprintln(os.Stdout, line)
}

// String describes the case.
func (c *randomCase) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: cable %v, %v and %v, link %+v, window %d\n", c.seed, c.cable, c.addrs[0], c.addrs[1], c.link, c.window)
	fmt.Fprintf(&b, "from a: %+v\nfrom b: %+v\nflaps: %+v\n", c.up[0].Specs, c.up[1].Specs, c.flaps)
	fmt.Fprintf(&b, "%d CQs, %d shared words, wakeup %d, network %+v\n", c.work.CQs, c.work.SharedWords, c.work.Wakeup, c.work.Network)
	for i, l := range c.work.Conns {
		fmt.Fprintf(&b, "connection %d: %+v\n", i, l)
	}
	return b.String()
}
