package verbsapi

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/dialogue"
	"github.com/fabrictest/fabrictest/conformance/model"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// memorySession has regions and windows over one buffer of the device, in two domains, and two
// connections to the partner, which accesses them.
type memorySession struct {
	*rig.Pair
	kind    verbs.QPType
	pds     [2]verbs.PD // the queue pairs are in the first
	links   [2]*qpPair
	peerMem *rig.Memory
	// buf is the buffer of all regions, and shadow the expected content.
	buf     *rig.Memory
	shadow  []byte
	model   model.VerbsMemory
	regions [3]verbs.MR
	windows [3]verbs.MW
	// stale are addresses with keys that were valid once.
	stale []verbs.Remote
	mix   memoryMix
}

// memoryStep is a verb call on a region or a window, or an access to one. The numbers select
// objects and vary the arguments.
type memoryStep struct {
	action          *memoryAction
	link, region, w int
	n, from, length int
}

func (s memoryStep) String() string {
	return fmt.Sprintf("%s (connection %d, region %d, window %d, bytes %d+%d, variant %d)", s.action.name, s.link+1, s.region+1, s.w+1, s.from, s.length, s.n)
}

// memoryAction is a kind of step, with its shares in the mixes for regions and for windows.
type memoryAction struct {
	name            string
	regions, window int
	play            func(*memorySession, memoryStep)
}

var memoryActions = []memoryAction{
	{"register a region", 10, 6, func(s *memorySession, step memoryStep) { s.register(step) }},
	{"close a region", 6, 5, func(s *memorySession, step memoryStep) { s.closeRegion(step.region) }},
	{"access by a region's key", 30, 6, func(s *memorySession, step memoryStep) { s.access(step, s.regionRemote(step)) }},
	{"access by an old key", 3, 3, func(s *memorySession, step memoryStep) { s.access(step, s.oldRemote(step)) }},
	{"send from a region", 12, 0, func(s *memorySession, step memoryStep) { s.sendFrom(step) }},
	{"receive into a region", 12, 0, func(s *memorySession, step memoryStep) { s.receiveInto(step) }},
	{"allocate or free a window", 0, 7, func(s *memorySession, step memoryStep) { s.allocate(step.w, step.n) }},
	{"bind a window", 0, 24, func(s *memorySession, step memoryStep) { s.bind(step) }},
	{"access through a window", 0, 30, func(s *memorySession, step memoryStep) {
		t := s.windowRemote(step)
		step.link = s.ownerOf(step)
		s.access(step, t)
	}},
	{"invalidate by a request", 0, 8, func(s *memorySession, step memoryStep) { s.invalidateLocally(step) }},
	{"invalidate by a message", 0, 8, func(s *memorySession, step memoryStep) { s.invalidateRemotely(step) }},
	{"close a connection and make another", 2, 2, func(s *memorySession, step memoryStep) { s.reconnect(step.link) }},
}

// memoryMix is a mix of steps.
type memoryMix struct {
	weight func(*memoryAction) int
	// requireEvents: a refused access must raise an event.
	requireEvents bool
	// hazards: queue pairs are closed while windows are bound to them, and messages invalidate free
	// windows. Both harm Linux.
	hazards bool
}

// bindAction is the index of the action that binds windows.
var bindAction = slices.IndexFunc(memoryActions, func(a memoryAction) bool { return a.name == "bind a window" })

// newMemorySession returns a session on pair, with two regions, windows if the mix binds them, and queue pairs of the default type.
func newMemorySession(pair *rig.Pair, mix memoryMix) *memorySession {
	s := &memorySession{Pair: pair, mix: mix, kind: rig.DefaultQPType(pair.DUT), pds: [2]verbs.PD{pair.DUT.PD, otherPD(pair.DUT)}}
	s.peerMem = s.Partner.Memory(memLen, regionAccess(s.Partner, rig.RemoteAccess(s.Partner)))
	s.buf = s.DUT.Memory(memLen, regionAccess(s.DUT, rig.RemoteAccess(s.DUT)))
	s.shadow = append(s.shadow, s.buf.Buf...)
	s.model.Regions, s.model.Windows = make([]*model.VerbsRegion, len(s.regions)), make([]*model.VerbsWindow, len(s.windows))
	for i := range s.links {
		s.connect(i)
	}
	for i := range 2 {
		s.register(memoryStep{region: i, from: 32 * i, length: 64, n: 15 * 7})
	}
	if mix.weight(&memoryActions[bindAction]) > 0 {
		for i := range s.windows {
			s.allocate(i, 1+i)
		}
	}
	return s
}

// connect makes connection i.
func (s *memorySession) connect(i int) {
	l := &qpPair{dut: &endpoint{Rig: s.DUT, mem: s.buf}, partner: &endpoint{Rig: s.Partner, mem: s.peerMem}}
	for _, e := range []*endpoint{l.dut, l.partner} {
		e.qp = e.CreateQP(verbs.QPInit{Type: s.kind, PD: e.PD, SendCQ: e.CQ, RecvCQ: e.CQ, Caps: smallCaps})
		e.ToInit(e.qp, rig.RemoteAccess(e.Rig), qKey)
	}
	l.connect(&setup{qpType: s.kind})
	s.links[i] = l
}

// reconnect closes both queue pairs of a connection, in any state, and makes another.
func (s *memorySession) reconnect(i int) {
	for j, w := range s.model.Windows {
		if !s.mix.hazards && w != nil && w.Type == verbs.MWType2 && w.Region != nil && w.QP == i {
			s.allocate(j, 0) // frees it
		}
	}
	s.disconnect(i)
	s.model.QPGone(i)
	s.connect(i)
}

func (s *memorySession) disconnect(i int) {
	for _, e := range []*endpoint{s.links[i].dut, s.links[i].partner} {
		e.Must("a queue pair that can be closed", e.qp.Close())
		if ah := e.udDest.AH; ah != nil {
			e.Must("an address handle that can be closed", ah.Close())
		}
		for _, ok := e.PollCompletion(shortWait); ok; _, ok = e.PollCompletion(shortWait) {
		}
	}
}

func (s *memorySession) Close() {
	for i := range s.windows {
		if s.windows[i] != nil {
			s.DUT.Must("a window that can be freed", s.windows[i].Close())
		}
	}
	for i := range s.links {
		s.disconnect(i)
	}
	for i := range s.regions {
		if s.regions[i] != nil {
			s.DUT.Must("a region without windows that can be closed", s.regions[i].Close())
		}
	}
	s.DUT.Must("a region that can be closed", s.buf.Close())
	s.DUT.Must("a domain that can be closed", s.pds[1].Close())
	s.Partner.Must("a region that can be closed", s.peerMem.Close())
	s.takeEvents(nil)
}

func (s *memorySession) Draw(random *rand.Rand) memoryStep {
	step := memoryStep{
		link: random.IntN(len(s.links)), region: random.IntN(len(s.regions)), w: random.IntN(len(s.windows)),
		n: random.IntN(1000), from: random.IntN(64), length: []int{1, 8, 8, 16, 40, 64, 100}[random.IntN(7)],
	}
	step.action = drawWeighted(random, memoryActions, s.mix.weight)
	return step
}

// Play plays a step, and compares the buffer and the events.
func (s *memorySession) Play(step memoryStep) {
	step.action.play(s, step)
	s.DUT.ExpectBytes(s.buf, 0, s.shadow)
	s.takeEvents(nil)
	s.DUT.ExpectNoCompletion()
	s.Partner.ExpectNoCompletion()
	for _, l := range s.links {
		s.DUT.ExpectState(l.dut.qp, rts)
	}
	for i, w := range s.model.Windows {
		if w != nil && !w.Unknown {
			s.DUT.Check(s.windows[i].RKey() == w.Key, fmt.Sprintf("window %d with the key %#x", i+1, w.Key), "%#x", s.windows[i].RKey())
		}
	}
}

// takeEvents takes all pending asynchronous events. Only errors of failed may be among them, and
// COMM_EST. It reports whether failed has an error.
func (s *memorySession) takeEvents(failed verbs.QP) (found bool) {
	for {
		e, err := s.DUT.Device.WaitAsync(0)
		if errors.Is(err, verbs.ErrTimeout) {
			return found
		}
		s.DUT.Must("events", err)
		s.DUT.Note("event %v", e.Type)
		isError := e.Type == verbs.EventQPAccessErr || e.Type == verbs.EventQPReqErr || e.Type == verbs.EventQPFatal
		s.DUT.Check(e.Type == verbs.EventCommEst || isError && failed != nil && e.QP == failed, "no event of this kind for this object", "%v", e.Type)
		found = found || isError
	}
}

// memoryDialogue returns the cases of a mix, for RC and reliable datagrams.
func memoryDialogue(c conformance.Case, mix memoryMix) []conformance.Case {
	c.Run = func(b *conformance.Bench) error {
		var pair *rig.Pair // the partner is opened once for all dialogues
		return dialogue.Spec[memoryStep]{Dialogues: 12, Steps: 60, Open: func(r *rig.Rig) dialogue.Session[memoryStep] {
			if pair == nil {
				pair = rig.NewPair(r)
			}
			return newMemorySession(pair, mix)
		}}.Body()(b)
	}
	return alsoOverRD([]conformance.Case{c})
}

var (
	regionDialogueCases = memoryDialogue(conformance.Case{
		ID:      "dialogue/verbs-memory/regions",
		Cite:    cite("ibv_reg_mr(3)", "verbs/mr/1", "verbs/mr/5", "verbs/mr/7", "verbs/mr/8", "verbs/mr/9", "verbs/mr/11", "verbs/mr/12", "verbs/pd/2", "verbs/pd/3"),
		Title:   "Local and remote accesses to overlapping regions succeed or fail as their keys, ranges, rights and domains say",
		Sends:   "random registrations; READs, WRITEs, atomics and SENDs of the partner, sends of the device, by valid, old and foreign keys",
		Expects: "the results of a model, and its content of the memory",
		Defects: []string{"IgnorePD", "StaleKeys", "RightsIgnored", "RangeSlack", "DeregOverlapping"},
	}, memoryMix{weight: regionWeight})
	accessEventDialogueCases = memoryDialogue(conformance.Case{
		ID:      "dialogue/verbs-memory/access-errors",
		Cite:    cite("ibv_get_async_event(3)", "verbs/async/3", "verbs/mr/11", "verbs/mr/12"),
		Title:   "Every refused access of a peer raises an event that names the queue pair, and no other access does",
		Sends:   "as dialogue/verbs-memory/regions",
		Expects: "QP_ACCESS_ERR, QP_REQ_ERR or QP_FATAL for each refused access, and the results of the model",
		Defects: []string{"AsyncEventsLost", "AsyncNamesNothing"},
	}, memoryMix{weight: regionWeight, requireEvents: true})
	windowDialogueCases = memoryDialogue(conformance.Case{
		ID: "dialogue/verbs-memory/windows", Needs: verbs.CapMWType1 | verbs.CapMWType2 | verbs.CapLocalInv | verbs.CapSendInv,
		Cite:    cite("ibv_bind_mw(3)", "verbs/mw/1", "verbs/mw/2", "verbs/mw/4", "verbs/mw/5", "verbs/mw/6", "verbs/mw/7", "verbs/mw/8", "verbs/mw/9", "verbs/mw/10", "verbs/mw/11", "verbs/mw/12", "verbs/mw/14", "verbs/mw/15", "verbs/mw/16", "verbs/mr/10"),
		Title:   "Windows of both types can be bound, used, invalidated and freed in any order, as the model says",
		Sends:   "random binds, valid or not; accesses of the partner through windows; invalidates by requests and by messages; frees",
		Expects: "the results and keys of a model, its content of the memory, and regions that are busy while windows are bound",
		Defects: []string{"WindowBounds", "WindowOwner", "LocalInvNoop", "RebindBound", "DeregBound", "ForeignInvalidate"},
	}, memoryMix{weight: windowWeight})
	hazardDialogueCases = memoryDialogue(conformance.Case{
		ID: "dialogue/verbs-memory/windows-of-closed-queue-pairs", Needs: verbs.CapMWType1 | verbs.CapMWType2 | verbs.CapLocalInv | verbs.CapSendInv,
		Labels:  []string{conformance.Dangerous},
		Cite:    cite("ibv_bind_mw(3)", "verbs/mw/7", "verbs/mw/12", "verbs/mw/16", "verbs/mr/10", "verbs/qp/8"),
		Title:   "Queue pairs can be closed while windows are bound to them, and free windows cannot be invalidated",
		Sends:   "as dialogue/verbs-memory/windows, with bound windows when a queue pair is closed, and messages that invalidate free windows",
		Expects: "the results and keys of a model, and its content of the memory; windows that can be freed",
		Defects: []string{"UnboundInvalidate", "BoundMWBusy"},
	}, memoryMix{weight: windowWeight, hazards: true})
)

func windowWeight(a *memoryAction) int { return a.window }

func regionWeight(a *memoryAction) int { return a.regions }
