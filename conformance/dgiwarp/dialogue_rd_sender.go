package dgiwarp

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/model"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// senderDialogue is a dialogue with the sending end of one flow of the device. Steps acknowledge,
// lose and delay the packets of long Writes.
type senderDialogue struct {
	*peer
	mix   []choice[*senderDialogue]
	model *model.DGSender
	// clock is the last data packet, whose timestamp tells the device's clock.
	clock arrival
	// unaAdvancedAt is the time of the last Ack of the oldest packet, or of the last timeout;
	// lastPacketAt that of the last Ack or data packet. The device's timer started between them.
	unaAdvancedAt, lastPacketAt time.Duration
	timeouts                    int  // in a row
	paused                      bool // the device has paused since the last Ack
}

const (
	senderMemory = 256 << 10
	senderWrites = 24
	// senderQuiet is longer than the pauses between the packets of a flight, and shorter than the
	// timeout.
	senderQuiet = 300 * time.Microsecond
	// senderRoundTrip is the round trip that the peer's Acks claim.
	senderRoundTrip = 10 * time.Microsecond
)

// openSender returns a function that opens a dialogue: random steps, drawn from a mix of kinds,
// whose effects on the sending device are compared with a model. The device sends long Writes
// meanwhile.
func openSender(mix []choice[*senderDialogue]) func(*rig.Rig) rig.DialogueSession[dgStep[*senderDialogue]] {
	return func(r *rig.Rig) rig.DialogueSession[dgStep[*senderDialogue]] {
		h := &host{Rig: r}
		if !h.Virtual {
			rig.NotApplicable("timeouts can be excluded in virtual time only")
		}
		h.beginDialogue()
		d := &senderDialogue{peer: h.newQP(setup{memLen: senderMemory}).peer(0), mix: mix, model: model.NewDGSender()}
		d.incarnation = 1 + r.Rand.Uint32()>>1 // not 0
		d.establishDeviceFlow()
		d.must(d.model.Send(0))
		d.model.Receive(model.DGSenderAck{Next: 1, Window: flowWindow})
		for id := range uint64(senderWrites) {
			d.PostSend(d.qp, d.wr(id, verbs.OpRDMAWrite, 0, senderMemory))
		}
		d.unaAdvancedAt, d.lastPacketAt = d.Now(), d.Now()
		d.collect()
		return d
	}
}

func (d *senderDialogue) Draw(r *rand.Rand) dgStep[*senderDialogue] { return drawStep(d.mix, r) }

func (d *senderDialogue) Play(s dgStep[*senderDialogue]) {
	s.run(d)
	d.collect()
	d.Completions()
}

// Close destroys the queue pair and deregisters its memory.
func (d *senderDialogue) Close() {
	d.Must("a queue pair that can be destroyed", d.qp.Close())
	for _, m := range []*rig.Memory{d.localMem, d.targetMem} {
		d.Must("a region that can be deregistered", m.Close())
	}
}

// must fails the case if the model returned an error, whose text is the expected behaviour.
func (d *senderDialogue) must(err error) {
	if err != nil {
		d.Fail(err.Error(), "%d packets in flight, the oldest %d, the next %d", d.model.InFlight(), d.model.Una, d.model.Next)
	}
}

// timeout returns the device's timeout, which doubles when it expires.
func (d *senderDialogue) timeout() time.Duration { return min(minTimeout<<d.timeouts, maxTimeout) }

// collect compares the packets that the device sends until it pauses. The last one must ask for an
// Ack (ack-now), and the model must not require more.
func (d *senderDialogue) collect() {
	var last arrival
	for {
		a, ok := d.nextData(senderQuiet)
		if !ok {
			d.Check(last.Data == nil || *last.Header.AckNow, "ack-now on the last packet before a pause", "%v", last.Packet)
			d.must(d.model.CheckPause())
			d.paused = true
			return
		}
		d.compareData(a)
		last = a
	}
}

// compareData compares a data packet with the model. A retransmission of a packet that the model
// does not count as lost must be due to a timeout. That of a lost packet is due to one if the device
// had paused, because its window was full, and the timer may have expired.
func (d *senderDialogue) compareData(a arrival) {
	seq := *a.Data.Seq
	again := int32(seq-d.model.Next) < 0
	due := d.timeout()
	tolerance := due / 10
	mayExpire := a.At >= d.unaAdvancedAt+due-tolerance
	if again && (!d.model.IsLost(seq) || d.paused && mayExpire) {
		d.Check(seq == d.model.Una && mayExpire, fmt.Sprintf("no retransmission of packet %d yet", seq), "%v after the last Ack", a.At-d.unaAdvancedAt)
		d.Check(a.At <= d.lastPacketAt+due+tolerance, fmt.Sprintf("a timeout after %v", due), "after %v", a.At-d.lastPacketAt)
		d.model.Timeout()
		d.timeouts++
		d.unaAdvancedAt = a.At
	}
	d.paused = false
	if err := d.model.Send(seq); err != nil {
		d.Fail(err.Error(), "%v with %d packets in flight", a.Packet, d.model.InFlight())
	}
	d.Check(!again || *a.Header.AckNow, "ack-now on a retransmission", "%v", a.Packet)
	d.clock, d.lastPacketAt = a, a.At
}

// acknowledge sends an Ack to the device and to the model, unless the specification leaves open how
// the device reacts. Window 0 in a means flowWindow. The Ack echoes the timestamp of the last
// packet or, if that is old and in half of the other cases, a timestamp of senderRoundTrip ago.
func (d *senderDialogue) acknowledge(a model.DGSenderAck) {
	if d.model.LeavesOpen(a) {
		return
	}
	if a.Window == 0 {
		a.Window = flowWindow
	}
	echo := *d.clock.Data.Timestamp
	if age := d.Now() - d.clock.At; age > senderQuiet*11/10 || d.model.Next%2 == 0 {
		echo += uint32((age - senderRoundTrip) / time.Microsecond)
	}
	d.send(iwarp.RDAck(d.fromDeviceFlow.epoch, a.Next).Echo(echo).SACK(iwarp.SACKOf(a.Next, a.Sacked...)...).Window(uint16(a.Window)).
		EditHeader(func(h *iwarp.PacketHeader) { h.Marked, h.Repeats = &a.Marked, &a.Repeats }))
	d.lastPacketAt, d.timeouts, d.paused = d.Now(), 0, false
	if a.Next != d.model.Una {
		d.unaAdvancedAt = d.Now()
	}
	d.model.Receive(a)
}

// sacked returns the packets after next to acknowledge by SACK: those that earlier Acks have
// acknowledged, and those of the others for which take returns true.
func (d *senderDialogue) sacked(next uint32, take func(seq uint32) bool) (all []uint32) {
	missing := d.model.Missing()
	for seq := next + 1; int32(seq-d.model.Next) < 0; seq++ {
		if !slices.Contains(missing, seq) || take(seq) {
			all = append(all, seq)
		}
	}
	return all
}

// ackThrough returns an Ack of the first n packets that are not acknowledged. It repeats the SACK
// of all later packets that earlier Acks have acknowledged.
func (d *senderDialogue) ackThrough(n int) model.DGSenderAck {
	next := d.model.Next
	if missing := d.model.Missing(); n < len(missing) {
		next = missing[n]
	}
	return model.DGSenderAck{Next: next, Sacked: d.sacked(next, func(uint32) bool { return false })}
}

func playAckAll(d *senderDialogue, _ *rand.Rand) {
	d.acknowledge(model.DGSenderAck{Next: d.model.Next})
}

// playAckSome acknowledges some of the oldest packets.
func playAckSome(d *senderDialogue, r *rand.Rand) {
	d.acknowledge(d.ackThrough(1 + r.IntN(max(1, len(d.model.Missing())))))
}

// playWindow acknowledges some packets and changes the receive window.
func playWindow(d *senderDialogue, r *rand.Rand) {
	a := d.ackThrough(1 + r.IntN(max(1, len(d.model.Missing()))))
	a.Window = uint32(rig.Pick(r, 1, 5, 20, 60, flowWindow, flowWindow+1, 1<<16-1))
	d.acknowledge(a)
}

// playMark acknowledges packets with the flag that reports a CE mark, in some cases twice.
func playMark(d *senderDialogue, r *rand.Rand) {
	for range 1 + r.IntN(2) {
		a := d.ackThrough(1 + r.IntN(max(1, len(d.model.Missing()))))
		a.Marked = true
		d.acknowledge(a)
		d.collect()
	}
}

// playRepeated acknowledges all packets with the flag that reports a duplicate, up to five times.
func playRepeated(d *senderDialogue, r *rand.Rand) {
	for range 1 + r.IntN(5) {
		d.acknowledge(model.DGSenderAck{Next: d.model.Next, Repeats: true})
		d.collect()
	}
}

// playSACK sends three Acks, whose SACKs acknowledge n, n+1 and then all packets after a missing
// one. The device counts that one as lost when n reaches the reordering threshold; n is drawn from
// numbers below, at and above the threshold.
func playSACK(d *senderDialogue, r *rand.Rand) {
	missing := d.model.Missing()
	if len(missing) < 3 {
		return
	}
	skip := r.IntN(min(4, len(missing)-2))
	next, n := missing[skip], rig.Pick(r, 1, 2, d.model.Reorder()-1, d.model.Reorder()-1, d.model.Reorder(), len(missing))
	gap := rig.Pick(r, 1<<30, 1<<30, 2, 5) // one in gap further packets is missing, too
	for _, more := range []int{0, 1, len(missing)} {
		i := 0
		a := model.DGSenderAck{Next: next}
		a.Sacked = d.sacked(next, func(uint32) bool { i++; return i <= n+more && i%gap != 0 })
		d.acknowledge(a)
		d.collect()
	}
}

// playTimeout sends no Ack until the device's timer expires, twice in some cases.
func playTimeout(d *senderDialogue, r *rand.Rand) {
	for range 1 + r.IntN(2) {
		if len(d.model.Missing()) == 0 {
			return
		}
		wait := d.lastPacketAt + d.timeout()*12/10 - d.Now()
		a, ok := d.nextData(wait)
		d.Check(ok, "a retransmission at a timeout", "none in %v", wait)
		d.compareData(a)
		d.collect()
	}
}

// playBusySender sends Acks with window 0, which say that the peer has no receive, one to four
// times: after each the device must retransmit its oldest packet, with twice the delay each time.
// Then the peer acknowledges that packet.
func playBusySender(d *senderDialogue, r *rand.Rand) {
	if len(d.model.Missing()) != int(d.model.Next-d.model.Una) || d.model.Una == d.model.Next {
		return // a peer without a receive stores no later packets, so it cannot have sent a SACK
	}
	a := d.ackThrough(0)
	for wait := range 1 + r.IntN(4) {
		begun := d.Now()
		d.send(iwarp.RDAck(d.fromDeviceFlow.epoch, a.Next).Echo(d.fromDeviceFlow.lastTimestamp).Window(0))
		d.model.Busy()
		due := firstBusyWait << wait
		again, ok := d.nextData(due + due/10)
		d.Check(ok && *again.Data.Seq == a.Next && again.At-begun >= due, fmt.Sprintf("packet %d again after %v", a.Next, due), "%v after %v", again.Packet, again.At-begun)
		d.clock = again
	}
	a.Next++ // the last one has found a receive
	d.acknowledge(a)
}

var senderDialogueCases = conformance.Group{Setup: conformance.Setup{Family: 4, MTU: 576, Reliable: true}}.Cases([]conformance.Case{{
	ID: "dialogue/dg-rd/sender", Cite: cite("7.5", "dg/ack/2", "dg/ack/6", "dg/loss/2", "dg/loss/3", "dg/loss/4", "dg/cc/1", "dg/cc/2", "dg/busy/2"),
	Title:   "A sender retransmits what is lost, and keeps as many packets in flight as its window has, in random dialogues",
	Sends:   "Acks of all and of some packets of long Writes, with SACKs, marks, the repeats flag and small or no windows; pauses",
	Expects: expectsModel,
	Defects: []string{"NoWindow", "OneLaterTells", "RepeatsUnheeded", "TimeoutFixed"},
	Run: rig.Dialogue[dgStep[*senderDialogue]]{Dialogues: 6, Steps: 24, Open: openSender([]choice[*senderDialogue]{
		{2, "an Ack of all packets", playAckAll},
		{4, "an Ack of some packets", playAckSome},
		{5, "Acks with gaps", playSACK},
		{2, "an Ack with the marked flag", playMark},
		{2, "Acks with the repeats flag", playRepeated},
		{1, "an Ack with another window", playWindow},
		{2, "no Ack for a while", playTimeout},
		{1, "a peer without receives", playBusySender},
	})}.Body(),
}})
