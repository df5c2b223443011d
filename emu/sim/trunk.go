package sim

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// TrunkConfig configures a cable between two switches.
type TrunkConfig struct {
	// Name is unique among the trunks and ports of its Net. The default is the
	// switch names joined by a hyphen.
	Name string
	A, B *Switch
	// Link configures both directions; QueueBytes and ECN are those of the
	// egress queues of the switches. TxQueueBytes and RxQueueBytes are unused.
	Link LinkConfig
	// AB impairs packets from A to B, BA those from B to A, at the far end of
	// the cable. Exact events cannot reorder here.
	AB, BA impair.Config
}

// Trunk is a cable between two switches.
type Trunk struct {
	net  *Net
	cfg  TrunkConfig
	dirs [2]trunkDir // A to B, B to A
	carrier
}

// trunkDir is one direction of a trunk, with the egress queue of the sending switch.
type trunkDir struct {
	linkDir
	to *Switch
}

// AddTrunk connects two switches by a link with a queue and impairments in each direction.
func (n *Net) AddTrunk(cfg TrunkConfig) (*Trunk, error) {
	if cfg.A == nil || cfg.B == nil || cfg.A.net != n || cfg.B.net != n || cfg.A == cfg.B {
		return nil, fmt.Errorf("net %s: trunk %s: it must join two different switches of the net", n.cfg.Name, cfg.Name)
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
		dir      string // as seen from A
		impair   impair.Config
	}{{cfg.A, cfg.B, "up", cfg.AB}, {cfg.B, cfg.A, "down", cfg.BA}} {
		dir := &t.dirs[i]
		dir.to = d.to
		dir.linkDir = linkDir{
			net: n, name: cfg.Name, place: d.from.cfg.Name + ">" + d.to.cfg.Name, direction: d.dir,
			cfg: &t.cfg.Link, carrier: &t.carrier, wire: newWire(&cfg.Link),
			ecnRand: n.w.Rand(n.randName(cfg.Name, "red/"+d.dir)), forward: func(n *Net, pk *packet) { n.forwardAt(d.to, pk) },
		}
		for k := range d.impair.Events {
			if d.impair.Events[k].Action.Kind == impair.Reorder {
				err = errors.Join(err, dir.impairError(fmt.Errorf("events[%d]: trunks cannot reorder: use a port", k)))
			}
		}
		if err = errors.Join(err, dir.addImpairment(d.impair)); err != nil {
			return nil, fmt.Errorf("net %s: %w", n.cfg.Name, err)
		}
	}
	cfg.A.out = append(cfg.A.out, &t.dirs[0])
	cfg.B.out = append(cfg.B.out, &t.dirs[1])
	n.trunks = append(n.trunks, t)
	n.trunkNames[cfg.Name] = t
	n.routesValid = false
	return t, nil
}

// Name returns the trunk's name.
func (t *Trunk) Name() string { return t.cfg.Name }

// Stats returns the counters of the packets sent from end A to B of the trunk, and from B to A. Of
// these, Stats.Out counts all packets, and Delivered those that arrived at the other end.
func (t *Trunk) Stats() (ab, ba Stats) { return t.dirs[0].stats, t.dirs[1].stats }

// Impairments returns the pipes of both directions; nil if there is no impairment.
func (t *Trunk) Impairments() (ab, ba *impair.Pipe) {
	return t.dirs[0].pipe(), t.dirs[1].pipe()
}

// SetImpair replaces the random impairments of packets from switch A to B and from B to A. Packets
// already delayed keep their delay.
func (t *Trunk) SetImpair(ab, ba []impair.Spec) error {
	if err := errors.Join(t.dirs[0].setSpecs(ab), t.dirs[1].setSpecs(ba)); err != nil {
		return err
	}
	t.net.w.Tracef("%s impairments replaced", t.cfg.Name)
	return nil
}

// SetDown takes the trunk down: queued packets and packets on the cable are
// lost. The switches at its ends use other next hops of the same cost, if any.
func (t *Trunk) SetDown() { t.setIsDown(true, &t.dirs[0].linkDir, &t.dirs[1].linkDir) }

// SetUp brings the trunk up.
func (t *Trunk) SetUp() { t.setIsDown(false, &t.dirs[0].linkDir, &t.dirs[1].linkDir) }

// route forwards pk from a switch to its next hop. A routed switch first decrements the hop limit,
// and drops a packet whose limit expires. A packet without a route counts as dropped by its
// sender's uplink.
func (n *Net) route(pk *packet, at *Switch) {
	if at.cfg.Routed && !n.decrementHopLimit(pk) {
		return
	}
	trunk := at.nextHop(pk.to.sw, flowHash(pk.Src, pk.Dst))
	if trunk == nil {
		pk.from.uplink.drop(pk, &pk.from.uplink.stats.Drops.NoRoute, "no-way")
		return
	}
	size := pk.size
	trunk.stats.Out.count(size)
	if trunk.transmit(pk) {
		trunk.stats.Sent++
		trunk.stats.SentBytes += uint64(size)
		n.tracePacket(trunk.place, "forward", &pk.Datagram)
	}
}

// decrementHopLimit decrements the hop limit of pk. If that is 1 or 0, it drops pk and returns
// false.
func (n *Net) decrementHopLimit(pk *packet) bool {
	if pk.HopLimit <= 1 {
		pk.from.uplink.drop(pk, &pk.from.uplink.stats.Drops.Expired, "expired")
		return false
	}
	pk.HopLimit--
	return true
}

// forwardAt forwards pk from the switch at the end of a trunk.
func (n *Net) forwardAt(at *Switch, pk *packet) {
	if at != pk.to.sw {
		n.route(pk, at)
		return
	}
	if !at.cfg.Routed || n.decrementHopLimit(pk) {
		n.egress(pk, pk.to)
	}
}

// trunkTransit is the position of a segment between switches. Segments share
// the bandwidth of trunks with packets, but queues do not drop them.
type trunkTransit struct {
	at    *Switch   // nil before the first switch
	dir   *trunkDir // trunk that it crosses
	epoch uint32    // of that trunk when sent
	hops  int
	lost  bool // a trunk went down, or no next hop was up
}

// maxStreamHops is the number of trunks on a path for which segments are kept
// strictly in order; fat trees have two.
const maxStreamHops = 8

// crossTrunk sends the TCP segment seg over the next trunk towards far, the receiver's port. It
// returns true if seg is at far's switch, or no trunk leads there. A trunk that goes down starts a
// new epoch: the segments on it are lost.
func (n *Net) crossTrunk(now mono.Time, seg *segment, far *Port) bool {
	s, transit := seg.sender, &seg.transit
	if transit.at == nil {
		transit.at = s.port.sw
	} else {
		transit.lost = transit.lost || transit.epoch != transit.dir.carrier.epoch
		transit.at = transit.dir.to
	}
	if transit.at == far.sw {
		return true
	}
	trunk := transit.at.nextHop(far.sw, flowHash(s.local, s.remote))
	if trunk == nil { // no trunk is up: forward seg as lost, so that later segments do not overtake it
		transit.lost = true
		hops := transit.at.nextHops[far.sw.id]
		if len(hops) == 0 {
			return true
		}
		trunk = hops[0]
	}
	transit.dir, transit.epoch = trunk, trunk.carrier.epoch
	// A trunk that goes down flushes its queue, so its next segment could arrive before
	// earlier ones: delay it until they have arrived.
	arrival := &s.hopArrival[min(transit.hops, maxStreamHops-1)]
	*arrival = max(*arrival, trunk.send(now, s.wireBytes(seg)))
	transit.hops++
	n.w.At(*arrival, (*segmentAtSwitch)(seg), 0)
	return false
}
