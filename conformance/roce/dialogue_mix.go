package roce

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/model"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// dialogueObjects are the objects of a dialogue on the device.
type dialogueObjects interface{ Close() }

// dialogueStep is a step of a dialogue with the objects S.
type dialogueStep[S dialogueObjects] struct {
	text string
	play func(S)
}

func (s dialogueStep[S]) String() string { return s.text }

// step makes a step; format and args describe it.
func step[S dialogueObjects](play func(S), format string, args ...any) dialogueStep[S] {
	return dialogueStep[S]{fmt.Sprintf(format, args...), play}
}

// dialogueMix are kinds of steps with their weights: a step is of a kind in proportion to its
// weight.
type dialogueMix[S dialogueObjects] []struct {
	weight int
	draw   func(S, *rand.Rand) dialogueStep[S]
}

// dialogueSession is a dialogue whose steps are of a mix.
type dialogueSession[S dialogueObjects] struct {
	objects S
	mix     dialogueMix[S]
}

func (s dialogueSession[S]) Play(p dialogueStep[S]) { p.play(s.objects) }
func (s dialogueSession[S]) Close()                 { s.objects.Close() }

// Draw chooses a kind of steps by the weights, and draws one of it.
func (s dialogueSession[S]) Draw(r *rand.Rand) dialogueStep[S] {
	total := 0
	for _, k := range s.mix {
		total += k.weight
	}
	n := r.IntN(total)
	for _, k := range s.mix {
		if n -= k.weight; n < 0 {
			return k.draw(s.objects, r)
		}
	}
	panic("unreachable: n is less than the sum of the weights")
}

// body makes the body of a case from the number of dialogues, the number of steps in each, and the
// function that makes the objects of a dialogue. All dialogues use the same port.
func (mix dialogueMix[S]) body(dialogues, steps int, open func(*Port) S) func(*conformance.Bench) error {
	return func(b *conformance.Bench) error {
		var p *Port
		return rig.Dialogue[dialogueStep[S]]{Dialogues: dialogues, Steps: steps, Open: func(r *rig.Rig) rig.DialogueSession[dialogueStep[S]] {
			if p == nil {
				p = newPort(r)
			}
			p.Sync()
			p.skipped = nil
			p.Completions()
			p.pendingEvents()
			return dialogueSession[S]{open(p), mix}
		}}.Body()(b)
	}
}

// chance returns true with probability 1/n.
func chance(r *rand.Rand, n int) bool { return r.IntN(n) == 0 }

// sendIDs is a bit of the IDs of send requests of dialogues, which the IDs of receives do not have.
// The opcode of a completion with an error is not defined.
const sendIDs = 1 << 32

// compareCompletions fails the case unless the device has these completions, those of each work
// queue in order, and no others. When it returns, the device has processed all packets.
func (p *Port) compareCompletions(want []verbs.WC) {
	var got []verbs.WC
	for len(got) < len(want) {
		wc, ok := p.PollCompletion(p.ResponseTimeout())
		p.Check(ok, fmt.Sprintf("%d completions: %s", len(want), describeAll(want)), "%d: %s", len(got), describeAll(got))
		got = append(got, wc)
	}
	p.Sync()
	p.matchCompletions(want, append(got, p.Completions()...))
}

// matchCompletions fails the case unless got has the same completions as want, those of each work
// queue in order.
func (p *Port) matchCompletions(want, got []verbs.WC) {
	p.Check(len(got) == len(want), fmt.Sprintf("%d completions: %s", len(want), describeAll(want)), "%d: %s", len(got), describeAll(got))
	for _, w := range want {
		i := slices.IndexFunc(got, func(g verbs.WC) bool { return g.QPN == w.QPN && g.WRID&sendIDs == w.WRID&sendIDs })
		p.Check(i >= 0, fmt.Sprintf("a completion of queue pair %#x: %s", uint32(w.QPN), rig.Describe(&w)), "%s", describeAll(got))
		p.compareCompletion(w, got[i])
		got = slices.Delete(got, i, i+1)
	}
}

// compareCompletion fails the case unless the defined fields of two completions are equal.
func (p *Port) compareCompletion(want, got verbs.WC) {
	equal := got.WRID == want.WRID && got.Status == want.Status && got.QPN == want.QPN
	if want.Status == verbs.WCSuccess {
		equal = equal && got.Opcode == want.Opcode
	}
	if isReceive := want.WRID&sendIDs == 0; isReceive && want.Status == verbs.WCSuccess {
		// Another case checks that receives of connected queue pairs have no GRH flag.
		compared := verbs.WCWithImm | verbs.WCWithInv | want.Flags&verbs.WCWithGRH
		equal = equal && got.ByteLen == want.ByteLen && got.Flags&compared == want.Flags
		if want.Flags&verbs.WCWithImm != 0 {
			equal = equal && got.Imm == want.Imm
		}
		if want.Flags&verbs.WCWithGRH != 0 {
			equal = equal && got.SrcQP == want.SrcQP
		}
	}
	p.Check(equal, describeFully(&want), "%s", describeFully(&got))
}

// describeFully formats the fields of a completion that compareCompletion compares.
func describeFully(wc *verbs.WC) string {
	return fmt.Sprintf("%s, queue pair %#x, source %#x, flags %#x", rig.Describe(wc), uint32(wc.QPN), uint32(wc.SrcQP), uint32(wc.Flags))
}

// describeAll describes completions, with their queue pairs, in one line.
func describeAll(all []verbs.WC) string {
	if len(all) == 0 {
		return "none"
	}
	s := ""
	for i := range all {
		s += fmt.Sprintf("; %s of queue pair %#x", rig.Describe(&all[i]), uint32(all[i].QPN))
	}
	return s[2:]
}

// compareMemory fails the case unless the memory has the content want, except in the undefined
// parts. It copies the content of these to want.
func (p *Port) compareMemory(m *rig.Memory, want []byte, undefined []model.UDSpan) {
	p.QueryPort() // orders the reads with the writes of the device
	for _, s := range undefined {
		copy(want[s.Off:][:s.Len], m.Buf[s.Off:])
	}
	p.ExpectBytes(m, 0, want)
	p.ExpectUnchangedOutside(m, 0, len(want))
}

// expectNoPackets fails the case if a packet has arrived that no step has received.
func (p *Port) expectNoPackets() {
	if a, ok := p.NextPacket(0); ok {
		p.Fail("nothing is sent", "%v", a)
	}
}

// expectEvents fails the case unless these events, and no others but COMM_EST, are raised.
func (p *Port) expectEvents(want ...verbs.AsyncEventType) {
	want = slices.Clone(want)
	take := func(e verbs.AsyncEvent) {
		if p.isSyncEvent(e) || e.Type == verbs.EventCommEst {
			return
		}
		p.Note("event %v", e.Type)
		i := slices.Index(want, e.Type)
		p.Check(i >= 0, fmt.Sprintf("the events %v", want), "%v", e.Type)
		want = slices.Delete(want, i, i+1)
	}
	for len(want) > 0 {
		e, err := p.Device.WaitAsync(p.ResponseTimeout())
		p.Check(!errors.Is(err, verbs.ErrTimeout), fmt.Sprintf("the event %v", want[0]), "none in %v", p.ResponseTimeout())
		p.Must("events", err)
		take(e)
	}
	for _, e := range p.pendingEvents() {
		take(e)
	}
}
