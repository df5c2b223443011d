package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// TrunkConfig describes a cable between two switches.
type TrunkConfig struct {
	// Name is the trunk's own in its Net, among trunks and ports. Empty means the
	// switches' names joined by a hyphen.
	Name string
	A, B *Switch
	// Link is the cable, the same both ways; QueueBytes and ECN are those of each
	// switch towards it. It has no TxQueueBytes and no RxQueueBytes.
	Link LinkConfig
	// AB impairs what goes from A to B, BA what comes back; each at the far end of
	// the cable. Exact events cannot reorder here.
	AB, BA impair.Config
}

// Trunk is a cable between two switches.
type Trunk struct {
	net    *Net
	cfg    TrunkConfig
	ways   [2]way // from A, from B
	isDown bool
	epoch  uint32 // how often it went down
}

// way is one direction of a trunk, with the queue of the switch that it leaves.
type way struct {
	trunk *Trunk
	name  string // for the trace
	dir   string // for random streams
	to    *Switch
	wire  wire
	red   *rand.Rand
	im    *impairment
	stats Stats
}

// AddTrunk joins two switches.
func (n *Net) AddTrunk(cfg TrunkConfig) (*Trunk, error) {
	if cfg.A == nil || cfg.B == nil || cfg.A.net != n || cfg.B.net != n || cfg.A == cfg.B {
		return nil, fmt.Errorf("net %s: trunk %s: it joins two switches of the net", n.cfg.Name, cfg.Name)
	}
	if cfg.Name == "" {
		cfg.Name = cfg.A.cfg.Name + "-" + cfg.B.cfg.Name
	}
	cfg.Link = cfg.Link.withDefaults()
	err := cfg.Link.validate()
	if n.byName[cfg.Name] != nil || n.trunkNames[cfg.Name] != nil {
		err = errors.Join(err, errors.New("the name is taken"))
	}
	if err != nil {
		return nil, fmt.Errorf("net %s: trunk %s: %w", n.cfg.Name, cfg.Name, err)
	}
	t := &Trunk{net: n, cfg: cfg}
	for i, d := range []struct {
		from, to *Switch
		dir      string // seen from A, as that of a port is from the port
		impair   impair.Config
	}{{cfg.A, cfg.B, "up", cfg.AB}, {cfg.B, cfg.A, "down", cfg.BA}} {
		w := &t.ways[i]
		*w = way{trunk: t, name: d.from.cfg.Name + ">" + d.to.cfg.Name, dir: d.dir, to: d.to}
		w.wire = wire{pacer: impair.Pacer{RateBps: cfg.Link.RateBps}, latency: cfg.Link.Latency, overhead: cfg.Link.OverheadBytes}
		w.red = n.w.Rand(n.stream(cfg.Name, "red/"+d.dir))
		if w.im, err = n.newTrunkImpairment(w, d.impair); err != nil {
			return nil, fmt.Errorf("net %s: %w", n.cfg.Name, err)
		}
	}
	cfg.A.out = append(cfg.A.out, &t.ways[0])
	cfg.B.out = append(cfg.B.out, &t.ways[1])
	n.trunks = append(n.trunks, t)
	n.trunkNames[cfg.Name] = t
	n.routed = false
	return t, nil
}

// Trunks returns the trunks in the order they were added.
func (n *Net) Trunks() []*Trunk { return n.trunks }

// Name returns the trunk's name.
func (t *Trunk) Name() string { return t.cfg.Name }

// Stats returns what went from A to B, and what came back: Out is all that was to
// go that way, Delivered what reached the far end.
func (t *Trunk) Stats() (ab, ba Stats) { return t.ways[0].stats, t.ways[1].stats }

// Impairments returns the pipes of both directions; nil where nothing is
// impaired.
func (t *Trunk) Impairments() (ab, ba *impair.Pipe) {
	return t.ways[0].im.pipeOrNil(), t.ways[1].im.pipeOrNil()
}

// SetImpair replaces what happens by chance, as that of a port does.
func (t *Trunk) SetImpair(ab, ba []impair.Spec) error {
	for i, specs := range [][]impair.Spec{ab, ba} {
		w := &t.ways[i]
		if w.im == nil {
			im, err := t.net.newTrunkImpairment(w, impair.Config{Specs: specs})
			if err != nil {
				return err
			}
			w.im = im
			continue
		}
		if err := w.im.pipe.SetSpecs(specs); err != nil {
			return &ImpairError{Port: t.cfg.Name, Direction: w.dir, Err: err}
		}
	}
	t.net.w.Tracef("%s impairments replaced", t.cfg.Name)
	return nil
}

// SetRate changes the bandwidth, as that of a port does.
func (t *Trunk) SetRate(bps uint64) {
	t.cfg.Link.RateBps = bps
	for i := range t.ways {
		t.ways[i].wire.pacer.SetRate(bps)
	}
	t.net.w.Tracef("%s rate %d", t.cfg.Name, bps)
}

// Up reports whether the trunk is up.
func (t *Trunk) Up() bool { return !t.isDown }

// SetDown takes the trunk down: what is queued for it or on it is lost. The
// switches at its ends choose other ways, if they have any of the same length.
func (t *Trunk) SetDown() {
	if t.isDown {
		return
	}
	t.isDown = true
	t.epoch++
	for i := range t.ways {
		t.ways[i].wire.flush()
	}
	t.net.w.Tracef("%s link down", t.cfg.Name)
}

// SetUp brings the trunk up again.
func (t *Trunk) SetUp() {
	if t.isDown {
		t.isDown = false
		t.net.w.Tracef("%s link up", t.cfg.Name)
	}
}

// The places at the end of a trunk, as handlers of the event that a packet gets
// there.
type (
	endOfTrunk Net // it has crossed the trunk
	pastTrunk  Net // and is unimpaired by now
)

// route sends pk, which is at a switch, one trunk nearer to its port.
func (n *Net) route(pk *packet, at *Switch) {
	if at.cfg.Routed && !n.countHop(pk) {
		return
	}
	w := at.choose(pk.to.sw, flowHash(pk.Src, pk.Dst))
	if w == nil {
		n.drop(pk, pk.from.cfg.Name, &pk.from.upDrops.NoRoute, "no-way")
		return
	}
	l, drops, now, size := &w.trunk.cfg.Link, &w.stats.Drops, n.w.now, pk.IPBytes()
	w.stats.Out.count(size)
	if size > l.MTU {
		n.drop(pk, w.name, &drops.TooBig, "too-big")
		return
	}
	queued := w.wire.backlog(now)
	if queued+size > l.QueueBytes {
		n.drop(pk, w.name, &drops.QueueFull, "queue-full")
		return
	}
	w.stats.QueueBytesMax = max(w.stats.QueueBytesMax, queued+size)
	if e := &l.ECN; e.MaxBytes > 0 && queued > e.MinBytes && e.marks(w.red, queued) && pk.mark() {
		w.stats.Marked++
	}
	w.stats.Sent++
	w.stats.SentBytes += uint64(size)
	n.note(w.name, "forward", &pk.Datagram)
	pk.way, pk.epoch = w, w.trunk.epoch
	n.w.At(w.wire.send(now, size), (*endOfTrunk)(n), uint64(pk.id))
}

// countHop takes one from the hop limit, and ends pk where none is left.
func (n *Net) countHop(pk *packet) bool {
	if pk.HopLimit <= 1 {
		n.drop(pk, pk.from.cfg.Name, &pk.from.upDrops.Expired, "expired")
		return false
	}
	pk.HopLimit--
	return true
}

func (h *endOfTrunk) HandleEvent(_ mono.Time, arg uint64) {
	n := (*Net)(h)
	pk := n.packets[arg]
	w := pk.way
	if pk.epoch != w.trunk.epoch {
		n.drop(pk, w.name, &w.stats.Drops.LinkDown, "lost-link")
		return
	}
	w.stats.Delivered++
	w.stats.DeliveredBytes += uint64(pk.IPBytes())
	if w.im != nil {
		w.im.pass(pk)
		return
	}
	n.leaveTrunk(pk)
}

func (h *pastTrunk) HandleEvent(_ mono.Time, arg uint64) {
	n := (*Net)(h)
	n.leaveTrunk(n.packets[arg])
}

// leaveTrunk is what the switch at the end of a trunk does with pk.
func (n *Net) leaveTrunk(pk *packet) {
	at := pk.way.to
	if at != pk.to.sw {
		n.route(pk, at)
		return
	}
	if !at.cfg.Routed || n.countHop(pk) {
		n.egress(pk, pk.to)
	}
}
