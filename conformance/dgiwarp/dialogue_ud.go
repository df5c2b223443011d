package dgiwarp

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance/model"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// udDialogue is a dialogue with unreliable queue pairs: scripted peers send messages, whole and in
// part, and an application sends as well.
type udDialogue struct {
	*host
	mix  []choice[*udDialogue]
	ends []*udEnd
	// partial are messages of which not all packets were sent.
	partial []*udMessage
	// nextMSN is the next MSN of each source. The sources use the same numbers.
	nextMSN []uint32
	// errors counts wrong segments: the device limits its error messages.
	errors int
	// expected since the last comparison
	expected udExpected
	nextID   uint64
	// least is the length of the shortest receive, without the GRH area.
	least int
}

// udEnd is a queue pair of the device, with its model and the peers that send to it.
type udEnd struct {
	*deviceQP
	model   model.DGUD
	memory  dialogueMemory
	buffers recvBuffers
	sources []*peer
	// source is the memory of the application's messages.
	source *rig.Memory
	sender udSender
	groups []netip.Addr
	// readOnly, foreign and closed are regions that peers must not write to.
	readOnly, foreign, closed *rig.Memory
	// failed says that the model was in the error state at the last comparison.
	failed bool
}

// udExpected is what the device must do in a step.
type udExpected struct {
	errors      []udError
	completions map[*udEnd][]udCompletion
	sends       map[*udEnd][]verbs.WC
	requests    []udRequest
	events      map[verbs.QPN]int
}

// udError is an error message that a peer must get.
type udError struct {
	to     *peer
	wrong  iwarp.Segment
	causes []iwarp.Cause
}

// udCompletion is a completion of a receive. to is the destination address of the message.
type udCompletion struct {
	model.DGCompletion
	to netip.Addr
	// mayFail says that the receive may complete in error instead, or not at all.
	mayFail bool
}

// udMessage is a message of a peer, in packets that cover it. They may overlap.
type udMessage struct {
	end     *udEnd
	from    *peer
	packets []iwarp.Packet
	unsent  []int // indices of packets
	record  bool
}

// udSetup describes the queue pairs of a dialogue.
type udSetup struct {
	ends     int
	isolated bool
	// least is the length of the shortest receive, without the GRH area.
	least int
}

const (
	udSources    = 3
	udMemory     = 8 << 10
	udRecvMemory = 32 << 10
	// maxPosted is the most octets of posted receives of a queue pair.
	maxPosted = udRecvMemory / 2
	// maxDialogueErrors is less than the number of error messages that a device sends at once.
	maxDialogueErrors = errorBurst - 3
	// errorRefill is how long a device may take until it sends as many error messages again.
	errorRefill = 200 * time.Millisecond
)

// openUD returns a function that opens a dialogue: random steps, drawn from a mix of kinds, whose
// effects on the device are compared with a model. It creates the queue pairs of the setup.
func openUD(s udSetup, mix []choice[*udDialogue]) func(*rig.Rig) rig.DialogueSession[dgStep[*udDialogue]] {
	return func(r *rig.Rig) rig.DialogueSession[dgStep[*udDialogue]] {
		d := &udDialogue{host: &host{Rig: r}, mix: mix, nextID: sendIDs, least: s.least}
		d.Sleep(errorRefill)
		d.beginDialogue()
		first := rig.Pick(r.Rand, 1, 1000, 0xfffffffa) // the last one wraps around to 0
		for range udSources {
			d.nextMSN = append(d.nextMSN, uint32(first))
		}
		for range s.ends {
			d.ends = append(d.ends, d.newEnd(s))
		}
		d.shareMemory()
		d.expected = newUDExpected()
		return d
	}
}

func newUDExpected() udExpected {
	return udExpected{completions: make(map[*udEnd][]udCompletion), sends: make(map[*udEnd][]verbs.WC), events: make(map[verbs.QPN]int)}
}

// newEnd creates a queue pair without receives, with its memory, its model and the scripted peers.
func (d *udDialogue) newEnd(s udSetup) *udEnd {
	q := d.newQP(setup{memLen: udMemory})
	q.localMem = d.Memory(udRecvMemory, verbs.AccessLocalWrite)
	e := &udEnd{deviceQP: q, source: d.Memory(udMemory, verbs.AccessLocalWrite)}
	e.buffers = recvBuffers{q: q, want: e.memory.add(q.localMem), posted: make(map[uint64][]part)}
	e.model = model.DGUD{QPN: uint32(q.qp.QPN()), Key: q.key, Isolated: s.isolated}
	e.addRegion(q.targetMem, allAccess)
	e.memory.add(e.source)
	e.addForbiddenRegions()
	for k := range udSources {
		p := q.peer(k)
		if k == 1 && len(q.Peers) > 1 {
			p.qpn = e.sources[0].qpn // the same QPN of another host
		}
		e.sources = append(e.sources, p)
	}
	e.sender.msn = 1
	return e
}

// shareMemory makes the regions of all queue pairs, which share a protection domain, known to
// each of them.
func (d *udDialogue) shareMemory() {
	var all model.DGMemory
	for _, e := range d.ends {
		all = append(all, e.model.Memory...)
	}
	for _, e := range d.ends {
		e.model.Memory = all
	}
}

// addRegion adds a region, which peers can address by its STag, to the model of the device. After
// each step the region must have the content that the model expects.
func (e *udEnd) addRegion(m *rig.Memory, access verbs.Access) *model.DGRegion {
	r := &model.DGRegion{STag: uint32(m.RKey()), Addr: m.Addr(), Access: access, Buf: e.memory.add(m)}
	e.model.Memory = append(e.model.Memory, r)
	return r
}

// addForbiddenRegions adds regions that peers must not write to: one without the right, one of
// another protection domain, and one that is deregistered.
func (e *udEnd) addForbiddenRegions() {
	pd := rig.Result(e.Device.AllocPD())(e, "another protection domain")
	e.readOnly, e.foreign, e.closed = e.Memory(64, allAccess&^verbs.AccessRemoteWrite), e.MemoryIn(pd, 64, allAccess), e.Memory(64, allAccess)
	e.addRegion(e.readOnly, allAccess&^verbs.AccessRemoteWrite)
	e.addRegion(e.foreign, allAccess).OtherPD = true
	e.memory.add(e.closed)
	e.Must("a region that can be deregistered", e.closed.Close())
}

func (d *udDialogue) Draw(r *rand.Rand) dgStep[*udDialogue] { return drawStep(d.mix, r) }

func (d *udDialogue) Play(s dgStep[*udDialogue]) {
	s.run(d)
	d.compare()
}

// Close detaches the queue pairs from their groups, destroys them and deregisters their memory.
func (d *udDialogue) Close() {
	if d.syncQP != nil {
		d.Must("a queue pair that can be destroyed", d.syncQP.p.qp.Close())
	}
	for _, e := range d.ends {
		for _, g := range e.groups {
			d.Must("a queue pair that can be detached", e.qp.DetachMulticast(verbs.GIDFrom(g)))
		}
		d.Must("a queue pair that can be destroyed", e.qp.Close())
		for _, m := range e.memory.regions {
			_ = m.Close() // a step may have deregistered it
		}
	}
}

// transmit sends a packet of a peer to a queue pair of the device, and adds the effects that it has
// in the model to the expected ones.
func (d *udDialogue) transmit(e *udEnd, from *peer, pkt iwarp.Packet) {
	octets := pkt.Over(from.path()).Append(nil)
	d.sendOctets(from.route, octets)
	out := e.model.Receive(d.Now(), model.DGSource{Host: from.route.from}, octets)
	d.expect(e, out)
	if out.Causes != nil {
		d.expected.errors = append(d.expected.errors, udError{from, *iwarp.ParsePacket(octets).Segment, out.Causes})
	}
}

// transmitToGroup sends a packet of a peer to a multicast group, and adds the effects that it has
// in the models of the members to the expected ones.
func (d *udDialogue) transmitToGroup(group netip.Addr, from *peer, pkt iwarp.Packet) {
	octets := pkt.Over(from.path()).Append(nil)
	d.sendOctets(from.route.toAddr(group), octets)
	for _, e := range d.ends {
		if slices.Contains(e.groups, group) {
			out := e.model.ReceiveGroup(d.Now(), model.DGSource{Host: from.route.from}, octets)
			d.expect(e, out)
			d.setDestination(e, out, group)
		}
	}
}

// setDestination sets the destination address of the expected completions that expect has just
// added for an outcome.
func (d *udDialogue) setDestination(e *udEnd, out model.DGOutcome, to netip.Addr) {
	all := d.expected.completions[e]
	for i := len(all) - len(out.Completions); i < len(all); i++ {
		all[i].to = to
	}
}

// expect adds the outcome of a packet in the model to what the device is expected to do:
// completions, an event for an error or a received error message, and a receive that an error may
// consume.
func (d *udDialogue) expect(e *udEnd, out model.DGOutcome) {
	for _, c := range out.Completions {
		d.expected.completions[e] = append(d.expected.completions[e], udCompletion{DGCompletion: c, to: d.Local[0]})
	}
	if out.Causes != nil || out.ErrorReport {
		d.expected.events[e.qp.QPN()]++
	}
	if out.Causes != nil {
		d.errors++
	}
	if out.MayConsume {
		c := udCompletion{mayFail: true}
		c.Receive = e.model.Receives[0]
		d.expected.completions[e] = append(d.expected.completions[e], c)
	}
}

// deadlines returns when timers of the device are due.
func (d *udDialogue) deadlines() (all []time.Duration) {
	for _, e := range d.ends {
		all = append(all, e.model.Deadlines()...)
	}
	return all
}

// compare fails the case unless the packets, events, completions, memory and states of the device
// after a step are those that the models permit. It forgets messages that later steps cannot
// continue: those sent completely, and Write-Records that have timed out.
func (d *udDialogue) compare() {
	d.syncDevice()
	now := d.settle(d.deadlines)
	for _, e := range d.ends {
		d.expect(e, e.model.Expire(now))
	}
	d.partial = slices.DeleteFunc(d.partial, func(m *udMessage) bool { return len(m.unsent) == 0 || m.record && !d.open(m) })
	d.comparePackets(d.drainArrived())
	d.checkEvents(d.expected.events)
	sends, receives := d.takeCompletions()
	for _, e := range d.ends {
		d.checkCompletions(d.expected.sends[e], sends[e.qp.QPN()])
		d.compareReceives(e, receives[e.qp.QPN()])
		e.memory.compare(d.Rig)
		state := verbs.QPStateRTS
		if e.model.Failed {
			state = verbs.QPStateErr
		}
		d.ExpectState(e.qp, state)
	}
	d.expected = newUDExpected()
}

// compareReceives compares the completions of receives with the expected ones, and after an error
// in the model with flushes of all other receives. A receive that may fail may also stay posted.
func (d *udDialogue) compareReceives(e *udEnd, got []verbs.WC) {
	var want []verbs.WC
	for _, c := range d.expected.completions[e] {
		if c.mayFail {
			if len(got) > len(want) && got[len(want)].WRID == c.Receive.ID && got[len(want)].Status != verbs.WCSuccess {
				want = append(want, got[len(want)])
				e.model.Receives = e.model.Receives[1:]
			}
			continue
		}
		want = append(want, c.WC)
	}
	if e.model.Failed && !e.failed {
		e.failed = true
		for _, r := range e.model.Receives {
			want = append(want, verbs.WC{WRID: r.ID, Status: verbs.WCWRFlushErr, QPN: e.qp.QPN()})
		}
		e.model.Receives = nil
	}
	d.checkCompletions(want, got)
	for _, c := range d.expected.completions[e] {
		if !c.mayFail {
			d.checkGRHArea(e.buffers.grhArea(c.Receive), c.Source.Host, c.to)
		}
	}
}

// comparePackets compares the packets of the device: error messages, and messages of requests.
func (d *udDialogue) comparePackets(got []arrival) {
	var messages []arrival
	for _, a := range got {
		if a.Segment == nil || a.Segment.Op() != iwarp.OpTerminate {
			messages = append(messages, a)
			continue
		}
		d.Check(len(d.expected.errors) > 0, "no error message", "%v", a.Packet)
		want := d.expected.errors[0]
		d.expected.errors = d.expected.errors[1:]
		p := want.to
		d.Check(causesMatch(a.Segment, want.wrong, want.causes), fmt.Sprintf("a Terminate for %v about %v", want.causes, want.wrong), "%v", a.Packet)
		d.checkPacket(p.fromDevice(iwarp.PacketOf(iwarp.KindUD).WithKey(p.deviceQP.key)), a)
		d.checkRoute(p, a)
	}
	if len(d.expected.errors) > 0 {
		want := d.expected.errors[0]
		d.Fail(fmt.Sprintf("a Terminate for %v about %v", want.causes, want.wrong), "nothing")
	}
	d.compareMessages(messages)
}

// checkRoute fails the case unless a packet goes from the device to the peer.
func (h *host) checkRoute(p *peer, a arrival) {
	from := netip.AddrPortFrom(a.IP.Src, iwarp.Val(a.UDP.SrcPort))
	to := netip.AddrPortFrom(a.IP.Dst, iwarp.Val(a.UDP.DstPort))
	h.Check(from == p.route.to && to == p.route.from, fmt.Sprintf("%v from %v to %v", a.Packet, p.route.to, p.route.from), "from %v to %v", from, to)
}
