package verbsapi

import (
	"fmt"
	"math/rand/v2"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// sessionStep is a step of a dialogue in a session S: a verb call, or a message.
type sessionStep[S any] struct {
	action *sessionAction[S]
	stepNumbers
}

// stepNumbers are random numbers of a step.
type stepNumbers struct {
	qp, cq, region, window int    // indices of objects
	n, from, length        int    // vary the arguments: from and length are an offset and a length
	seed                   uint64 // for a generator of further random numbers
}

func (s sessionStep[S]) String() string { return fmt.Sprintf("%s %+v", s.action.name, s.stepNumbers) }

// sessionAction is a kind of step. It has a weight for each mix of the session: a step is of a kind
// in proportion to its weight.
type sessionAction[S any] struct {
	name    string
	weights []int
	play    func(S, sessionStep[S])
}

// drawStep returns a random step of a mix.
func drawStep[S any](random *rand.Rand, actions []sessionAction[S], mix int) (step sessionStep[S]) {
	step.stepNumbers = stepNumbers{
		qp: random.IntN(6), cq: random.IntN(2), region: random.IntN(3), window: random.IntN(3),
		n: random.IntN(10000), from: random.IntN(64), length: rig.Pick(random, 1, 8, 8, 16, 40, 64, 100), seed: random.Uint64(),
	}
	total := 0
	for i := range actions {
		total += actions[i].weights[mix]
	}
	pick := random.IntN(total)
	for i := range actions {
		if pick -= actions[i].weights[mix]; pick < 0 {
			step.action = &actions[i]
			break
		}
	}
	return step
}

// pairDialogue returns the body of a case with dialogues between the device and a partner: random
// verbs calls, whose results are compared with a model. open begins a dialogue.
func pairDialogue[Step fmt.Stringer](open func(*rig.Pair) rig.DialogueSession[Step]) func(*conformance.Bench) error {
	return func(b *conformance.Bench) error {
		var pair *rig.Pair // all dialogues have the same rig, and use the partner that the first opens
		return rig.Dialogue[Step]{Dialogues: 12, Steps: 60, Open: func(r *rig.Rig) rig.DialogueSession[Step] {
			if pair == nil {
				pair = rig.NewPair(r)
			}
			return open(pair)
		}}.Body()(b)
	}
}

// newLink creates a queue pair of the device with init, and one of the partner of the same type,
// and connects them.
func newLink(pair *rig.Pair, init verbs.QPInit, mem, peerMem *rig.Memory) *qpPair {
	dut := *pair.DUT
	dut.PD = init.PD
	l := &qpPair{dut: &endpoint{Rig: &dut, mem: mem}, partner: &endpoint{Rig: pair.Partner, mem: peerMem}}
	l.dut.qp = dut.CreateQP(init)
	init.PD, init.SendCQ, init.RecvCQ = l.partner.PD, l.partner.CQ, l.partner.CQ
	init.Caps, init.SignalAll, init.SRQ = smallCaps, false, nil
	l.partner.qp = l.partner.CreateQP(init)
	for _, e := range []*endpoint{l.dut, l.partner} {
		e.ToInit(e.qp, rig.RemoteAccess(e.Rig), qKey)
	}
	l.connect(&setup{qpType: init.Type})
	return l
}

// close closes both queue pairs, in any state, and discards the completions on the CQs of the rigs.
func (l *qpPair) close() {
	for _, e := range []*endpoint{l.dut, l.partner} {
		e.Must("a queue pair that can be closed", e.qp.Close())
		if ah := e.udDest.AH; ah != nil {
			e.Must("an address handle that can be closed", ah.Close())
		}
		for _, ok := e.PollCompletion(shortWait); ok; _, ok = e.PollCompletion(shortWait) {
		}
	}
}
