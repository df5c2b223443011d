package sim

import (
	"math/rand/v2"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// carrier is the link state of a cable.
type carrier struct {
	isDown bool
	epoch  uint32 // number of times the link went down
}

// setIsDown takes the link down or up, and reports whether that is a change. Down empties the
// queues of both directions and starts an epoch: packets of earlier epochs on the cable are lost.
func (c *carrier) setIsDown(down bool, a, b *linkDir) bool {
	if c.isDown == down {
		return false
	}
	c.isDown = down
	state := "up"
	if down {
		state = "down"
		c.epoch++
		a.flush()
		b.flush()
	}
	a.net.w.Tracef("%s link %s", a.name, state)
	return true
}

// linkDir is one direction of a cable, with the queue before it and the impairment at its far end.
type linkDir struct {
	net       *Net
	name      string // of the port or trunk
	place     string // in traces and reports of drops: the port, or "from>to" of a trunk
	direction string // "up" or "down"
	port      *Port  // nil on a trunk
	lastHop   bool   // it leads to the receiver
	cfg       *LinkConfig
	carrier   *carrier
	wire
	crossing
	ecnRand    *rand.Rand
	impairment *impairment         // nil if there is none
	forward    func(*Net, *packet) // handles a packet that has crossed the cable and passed the impairment
	stats      Stats
}

// transmit puts pk into the egress queue of a switch and schedules its arrival at the far end. It
// reports false for a packet that it drops because it is too big or does not fit in the queue.
func (d *linkDir) transmit(pk *packet) bool {
	n, size := d.net, pk.size
	queued := d.backlog(n.w.now)
	switch {
	case size > d.cfg.MTU:
		d.drop(pk, &d.stats.Drops.TooBig, "too-big")
		return false
	case queued+size > d.cfg.QueueBytes:
		d.drop(pk, &d.stats.Drops.QueueFull, "queue-full")
		return false
	}
	d.stats.QueueBytesMax = max(d.stats.QueueBytesMax, queued+size)
	if e := &d.cfg.ECN; e.MaxBytes > 0 && queued > e.MinBytes && e.shouldMark(d.ecnRand, queued) && pk.markCE() {
		d.stats.Marked++
	}
	d.putOnWire(pk)
	return true
}

// putOnWire schedules the arrival of pk at the far end.
func (d *linkDir) putOnWire(pk *packet) {
	w := d.net.w
	pk.dir, pk.epoch = d, d.carrier.epoch
	at := d.send(w.now, pk.size)
	if w.ended {
		return
	}
	pk.arrival = entryOrder{at, w.queue.nextSeq()}
	switch last := d.last; {
	case d.first == nil:
		d.first, d.last = pk, pk
		d.schedule(w)
	case at < last.arrival.at: // the link has been down, and packets that it has lost arrive later
		w.queue.pushOrdered(pk.arrival, (*cableArrival)(pk), 0)
	default:
		d.last, last.next = pk, pk
	}
}

// crossing has the packets that are queued for a cable or on it, in the order in which they arrive.
// Only the arrival of the first is in the event queue of the world, which is faster if it is short.
type crossing struct {
	first, last *packet
	slot        uint32  // in the event queue; 0 until it is first used
	sprayed     bool    // the first packet has been chosen
	overtaken   *packet // that the next packet overtakes, by a fault
}

// schedule adds the arrival of the first packet to the event queue.
func (d *linkDir) schedule(w *World) {
	if d.slot == 0 {
		d.slot = w.queue.keepSlot(d)
	}
	w.queue.insert(entry{d.first.arrival, d.slot})
}

// HandleEvent implements Handler: the first packet on the cable arrives.
func (d *linkDir) HandleEvent(mono.Time, uint64) {
	if d.cfg.Spray > 0 && d.spray() {
		return
	}
	pk := d.first
	d.first, pk.next = pk.next, nil
	if d.first != nil {
		d.schedule(d.net.w)
	}
	d.arrive(pk)
}

// shouldMark decides whether to mark a packet that found a queue longer than
// MinBytes. As with RED, the probability grows linearly to MaxPPM at MaxBytes;
// above that it is 1. It draws a random number for every packet, so that packets
// without ECT do not shift the marks of the others.
func (e *ECNConfig) shouldMark(rng *rand.Rand, queued int) bool {
	draw := uint64(randBelow(rng, impair.PPM))
	return queued > e.MaxBytes ||
		draw*uint64(e.MaxBytes-e.MinBytes) < uint64(e.MaxPPM)*uint64(queued-e.MinBytes)
}

// markCE sets CE if pk has an ECT codepoint, and reports whether it did.
func (pk *packet) markCE() bool {
	if ecn := pk.ECNBits(); ecn == link.NotECT || ecn == link.CE {
		return false
	}
	pk.TClass |= link.CE
	return true
}

// Handlers of a packet.
type (
	cableArrival    packet // the packet has crossed the cable of its linkDir
	afterImpairment packet // the packet has passed the impairment at the end of the cable
)

// HandleEvent implements Handler.
func (h *cableArrival) HandleEvent(mono.Time, uint64) { h.dir.arrive((*packet)(h)) }

// arrive handles a packet that has reached the end of the cable. It is lost if the link went down
// meanwhile (another epoch). A port counts it as delivered later, when it is queued.
func (d *linkDir) arrive(pk *packet) {
	if pk.epoch != d.carrier.epoch {
		d.drop(pk, &d.stats.Drops.LinkDown, "lost-link")
		return
	}
	if d.port == nil { // a trunk
		d.stats.Delivered++
		d.stats.DeliveredBytes += uint64(pk.size)
	}
	if d.lastHop && (d.net.w.faults > 0 || d.overtaken != nil) {
		d.arriveWithFaults(pk)
		return
	}
	d.impair(pk)
}

// HandleEvent implements Handler. An impairment has delayed the packet until now.
func (h *afterImpairment) HandleEvent(mono.Time, uint64) { h.dir.forward(h.dir.net, (*packet)(h)) }

// impair passes pk through the impairment at the end of the cable, if any, and forwards it.
func (d *linkDir) impair(pk *packet) {
	if d.impairment != nil {
		d.impairment.apply(pk)
		return
	}
	d.forward(d.net, pk)
}

// impairment applies an impair.Pipe to the packets of a linkDir.
type impairment struct {
	*linkDir
	pipe  *impair.Pipe
	out   []impair.Outcome // of the last call of the pipe
	timer Timer            // for packets that the pipe holds
}

// addImpairment creates the impairment, unless cfg changes no packet.
func (d *linkDir) addImpairment(cfg impair.Config) error {
	n := d.net
	pipe, err := impair.NewPipe(cfg, n.cfg.Dissector, func(kind string) impair.Source {
		return n.w.Rand(n.randName(d.name, d.direction+"/"+kind))
	})
	if err != nil {
		return d.impairError(err)
	}
	if !pipe.Transparent() {
		d.impairment = &impairment{linkDir: d, pipe: pipe}
		d.impairment.timer.init(n.w, d.impairment, 0)
	}
	return nil
}

// setSpecs replaces the random impairments.
func (d *linkDir) setSpecs(specs []impair.Spec) error {
	if d.impairment == nil {
		return d.addImpairment(impair.Config{Specs: specs})
	}
	if err := d.impairment.pipe.SetSpecs(specs); err != nil {
		return d.impairError(err)
	}
	return nil
}

func (d *linkDir) impairError(err error) error {
	return &ImpairError{Port: d.name, Direction: d.direction, Err: err}
}

// pipe returns the pipe of the impairment; nil if there is none.
func (d *linkDir) pipe() *impair.Pipe {
	if d.impairment == nil {
		return nil
	}
	return d.impairment.pipe
}

// apply passes pk through the pipe, which may drop, change, copy, delay or hold it. If nothing
// comes out, apply reports a drop, even if the pipe holds pk back.
func (im *impairment) apply(pk *packet) {
	im.out = im.pipe.Apply(im.net.w.now, &pk.Datagram, im.out[:0])
	if len(im.out) == 0 {
		im.net.reportDrop(im.name, "impaired", &pk.Datagram)
	}
	im.forwardOutput(pk.from, pk.to)
	im.net.releasePacket(pk)
}

// HandleEvent implements Handler: it forwards packets that the pipe held until now. The port is the
// sender on an uplink, the receiver on a downlink. A pipe of a trunk, without a port, holds none.
func (im *impairment) HandleEvent(now mono.Time, _ uint64) {
	im.out = im.pipe.HandleTimer(now, im.out[:0])
	im.forwardOutput(im.port, im.port)
}

// forwardOutput forwards the packets in im.out, which came out of the pipe of impairments, after
// their delays, and arms the timer for packets that the pipe holds.
func (im *impairment) forwardOutput(from, to *Port) {
	n := im.net
	for i := range im.out {
		output := &im.out[i]
		pk := n.newPacket(&output.Datagram, from, to)
		pk.dir = im.linkDir
		if output.Delay > 0 {
			n.w.After(output.Delay, (*afterImpairment)(pk), 0)
		} else {
			im.forward(n, pk)
		}
	}
	im.timer.Reset(im.pipe.NextTimer())
}

// wire is one direction of a cable and its queue. It needs no events: the
// departure time of a packet is known when it is queued.
type wire struct {
	pacer       impair.Pacer
	latency     time.Duration
	overhead    int // bytes of framing per packet
	departures  nic.FIFO[departure]
	queuedBytes int // bytes in departures
}

type departure struct {
	at    mono.Time // when the last bit leaves
	bytes int
}

// newWire returns an empty wire with the rate, latency and framing of a cable.
func newWire(l *LinkConfig) wire {
	return wire{pacer: impair.Pacer{RateBps: l.RateBps}, latency: l.Latency, overhead: l.OverheadBytes}
}

// send sends n bytes, which are queued unless they depart at once. It returns the time at which
// they will arrive at the far end.
func (x *wire) send(now mono.Time, n int) mono.Time {
	departs := x.pacer.Next(now, n+x.overhead)
	if departs > now {
		x.departures.Push(departure{at: departs, bytes: n})
		x.queuedBytes += n
	}
	return departs.Add(x.latency)
}

// backlog returns the bytes in the queue, including the packet being sent.
func (x *wire) backlog(now mono.Time) int {
	for x.departures.Len() > 0 && x.departures.First().at <= now {
		d, _ := x.departures.Pop()
		x.queuedBytes -= d.bytes
	}
	return x.queuedBytes
}

// flush empties the queue when the link goes down.
func (x *wire) flush() {
	x.pacer.Reset()
	x.departures.Release()
	x.queuedBytes = 0
}
