package verbsapi

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/model"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// memorySession has regions and windows over one buffer of the device, in two domains, and three
// connections to the partner, which accesses them. The last is in the second domain.
type memorySession struct {
	*rig.Pair
	kind    verbs.QPType
	pds     [2]verbs.PD
	links   [3]*qpPair
	peerMem *rig.Memory // of the partner
	// buf is the buffer of all regions, shadow its expected content, and whole a region of the
	// whole buffer in each domain.
	buf    *rig.Memory
	shadow []byte
	whole  [2]verbs.MR
	// mems are the buffers for receives, by domain.
	mems    [2]*rig.Memory
	model   model.VerbsMemory
	regions [3]verbs.MR
	windows [3]verbs.MW
	// stale are addresses with keys that are no longer valid.
	stale []verbs.Remote
	mix   memoryMix
}

// linkDomains are the indices in pds of the domains of the device's queue pairs.
var linkDomains = [3]int{0, 0, 1}

// linkIn returns the index of the connection of a step: in six of seven steps, one whose queue pair
// is in domain pd.
func linkIn(pd int, step memoryStep) int {
	switch {
	case step.n%7 == 0:
		return step.qp
	case pd == 1:
		return 2 // the only one in domain 1
	}
	return step.qp % 2 // 0 or 1, both in domain 0
}

type memoryStep = sessionStep[*memorySession]

// memoryActions have two weights: in the mixes for regions and for windows.
var memoryActions = []sessionAction[*memorySession]{
	{"register a region", []int{10, 6}, (*memorySession).register},
	{"close a region", []int{6, 5}, func(s *memorySession, step memoryStep) { s.closeRegion(step.region) }},
	{"access by a region's key", []int{30, 6}, func(s *memorySession, step memoryStep) { s.access(step, s.regionTarget(step)) }},
	{"access by a key that is not valid", []int{4, 4}, func(s *memorySession, step memoryStep) { s.access(step, s.invalidTarget(step)) }},
	{"send from a region", []int{10, 0}, (*memorySession).sendFrom},
	{"receive into a region", []int{10, 0}, (*memorySession).receiveInto},
	{"read into a region", []int{8, 0}, (*memorySession).readInto},
	{"allocate or free a window", []int{0, 7}, func(s *memorySession, step memoryStep) { s.toggleWindow(step.window, step.n) }},
	{"bind a window", []int{0, 24}, (*memorySession).bind},
	{"access through a window", []int{0, 30}, (*memorySession).accessThroughWindow},
	{"invalidate by a request", []int{0, 8}, (*memorySession).invalidateLocally},
	{"invalidate by a message", []int{0, 8}, (*memorySession).invalidateRemotely},
	{"close a connection and make another", []int{2, 2}, func(s *memorySession, step memoryStep) { s.reconnect(step.qp) }},
}

// memoryMix is a mix of steps.
type memoryMix struct {
	windows bool
	// requireEvents: a refused access must raise an event.
	requireEvents bool
	// hazards: queue pairs are closed while windows are bound to them, and messages invalidate free
	// windows. Both can crash a Linux kernel.
	hazards bool
}

// newMemorySession returns a session with the first two of its regions registered, all windows
// allocated if the mix uses windows, and connections of the default queue pair type. s.shadow is
// the content that the device's buffer must have.
func newMemorySession(pair *rig.Pair, mix memoryMix) *memorySession {
	s := &memorySession{Pair: pair, mix: mix, kind: rig.DefaultQPType(pair.DUT), pds: [2]verbs.PD{pair.DUT.PD, otherPD(pair.DUT)}}
	access := regionAccess(s.DUT, rig.RemoteAccess(s.DUT))
	s.peerMem = s.Partner.Memory(memLen, regionAccess(s.Partner, rig.RemoteAccess(s.Partner)))
	s.buf = s.DUT.Memory(bufLen, access)
	s.shadow = append(s.shadow, s.buf.Buf...)
	for i, pd := range s.pds {
		s.whole[i] = rig.Result(pd.RegMR(verbs.MRInit{Buf: s.buf.Buf, Access: access}))(s.DUT, "a region")
		s.mems[i] = s.DUT.MemoryIn(pd, memLen, access)
	}
	s.model.Regions, s.model.Windows = make([]*model.VerbsRegion, len(s.regions)), make([]*model.VerbsWindow, len(s.windows))
	for i := range s.links {
		s.connect(i)
	}
	for i := range 2 { // with these n register grants all rights, and uses domain 0, then 1
		s.register(memoryStep{stepNumbers: stepNumbers{region: i, from: 32 * i, length: 64, n: 9 + 16*i}})
	}
	if mix.windows {
		for i := range s.windows {
			s.toggleWindow(i, 1+i)
		}
	}
	return s
}

// bufLen is the length of the buffer of all regions.
const bufLen = 512

// connect makes connection i.
func (s *memorySession) connect(i int) {
	pd := linkDomains[i]
	init := verbs.QPInit{Type: s.kind, PD: s.pds[pd], SendCQ: s.DUT.CQ, RecvCQ: s.DUT.CQ, Caps: smallCaps}
	s.links[i] = newLink(s.Pair, init, s.mems[pd], s.peerMem)
}

// reconnect closes both queue pairs of a connection, in any state, and makes another. It first
// frees the type 2 windows that are bound to the device's queue pair, unless the mix has the hazard
// of closing a queue pair with bound windows.
func (s *memorySession) reconnect(i int) {
	for j, w := range s.model.Windows {
		if !s.mix.hazards && w != nil && w.Type == verbs.MWType2 && w.Region != nil && w.QP == i {
			s.toggleWindow(j, 0) // frees it
		}
	}
	s.links[i].close()
	s.model.QPGone(i)
	s.connect(i)
}

// Close frees the objects of the session.
func (s *memorySession) Close() {
	for i := range s.windows {
		if s.windows[i] != nil {
			s.DUT.Must("a window that can be freed", s.windows[i].Close())
		}
	}
	for _, l := range s.links {
		l.close()
	}
	for i := range s.regions {
		if s.regions[i] != nil {
			s.DUT.Must("a region without windows that can be closed", s.regions[i].Close())
		}
	}
	for _, r := range []closer{s.buf, s.whole[0], s.whole[1], s.mems[0], s.mems[1]} {
		s.DUT.Must("a region that can be closed", r.Close())
	}
	s.DUT.Must("a domain that can be closed", s.pds[1].Close())
	s.Partner.Must("a region that can be closed", s.peerMem.Close())
	s.takeEvents(nil)
}

// Draw returns a random step.
func (s *memorySession) Draw(random *rand.Rand) memoryStep {
	weight := 0 // the index in the weights of memoryActions
	if s.mix.windows {
		weight = 1
	}
	step := drawStep(random, memoryActions, weight)
	step.qp %= len(s.links)
	return step
}

// Play performs a step. The case fails unless the buffer and the windows' keys are those of the
// model, all queue pairs are in RTS, and there are no events or completions left.
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

// takeEvents reads all pending asynchronous events. The case fails if there are others than
// COMM_EST and the error events of failedQP, which is nil if none has failed. It reports whether
// there was such an error event.
func (s *memorySession) takeEvents(failedQP verbs.QP) (found bool) {
	for {
		e, err := s.DUT.Device.WaitAsync(0)
		if errors.Is(err, verbs.ErrTimeout) {
			return found
		}
		s.DUT.Must("events", err)
		s.DUT.Note("event %v", e.Type)
		isError := e.Type == verbs.EventQPAccessErr || e.Type == verbs.EventQPReqErr || e.Type == verbs.EventQPFatal
		s.DUT.Check(e.Type == verbs.EventCommEst || isError && failedQP != nil && e.QP == failedQP, "no such event of this object", "%v", e.Type)
		found = found || isError
	}
}

// memoryDialogue returns the cases of a mix, for RC and reliable datagrams.
func memoryDialogue(c conformance.Case, mix memoryMix) []conformance.Case {
	c.Run = pairDialogue(func(pair *rig.Pair) rig.DialogueSession[memoryStep] { return newMemorySession(pair, mix) })
	return alsoOverRD([]conformance.Case{c})
}

var (
	regionDialogueCases = memoryDialogue(conformance.Case{
		ID:      "dialogue/verbs-memory/regions",
		Cite:    cite("ibv_reg_mr(3)", "verbs/mr/1", "verbs/mr/5", "verbs/mr/7", "verbs/mr/8", "verbs/mr/9", "verbs/mr/11", "verbs/mr/12", "verbs/pd/2", "verbs/pd/3"),
		Title:   "Local and remote accesses to overlapping regions succeed or fail as their keys, ranges, rights and domains say",
		Sends:   "random registrations; READs, WRITEs, atomics and SENDs of the partner, sends and READs of the device, by valid, old and foreign keys",
		Expects: "the results of a model, and its content of the memory",
		Defects: []string{"IgnorePD", "StaleKeys", "RightsIgnored", "RangeSlack", "DeregOverlapping"},
	}, memoryMix{})
	accessEventDialogueCases = memoryDialogue(conformance.Case{
		ID:      "dialogue/verbs-memory/access-errors",
		Cite:    cite("ibv_get_async_event(3)", "verbs/async/3", "verbs/mr/11", "verbs/mr/12"),
		Title:   "Every refused access of a peer raises an event that names the queue pair, and no other access does",
		Sends:   "as dialogue/verbs-memory/regions",
		Expects: "QP_ACCESS_ERR, QP_REQ_ERR or QP_FATAL for each refused access, and the results of the model",
		Defects: []string{"AsyncEventsLost", "AsyncNamesNothing"},
	}, memoryMix{requireEvents: true})
	windowDialogueCases = memoryDialogue(conformance.Case{
		ID: "dialogue/verbs-memory/windows", Needs: verbs.CapMWType1 | verbs.CapMWType2 | verbs.CapLocalInv | verbs.CapSendInv,
		Cite:    cite("ibv_bind_mw(3)", "verbs/mw/1", "verbs/mw/2", "verbs/mw/4", "verbs/mw/5", "verbs/mw/6", "verbs/mw/7", "verbs/mw/8", "verbs/mw/9", "verbs/mw/10", "verbs/mw/11", "verbs/mw/12", "verbs/mw/14", "verbs/mw/15", "verbs/mw/16", "verbs/mw/17", "verbs/mr/10"),
		Title:   "Windows of both types can be bound, used, invalidated and freed in any order, as the model says",
		Sends:   "random binds, valid or not; accesses of the partner through windows; invalidates by requests and by messages; frees",
		Expects: "the results and keys of a model, its content of the memory, and regions that are busy while windows are bound",
		Defects: []string{"WindowBounds", "WindowOwner", "LocalInvNoop", "RebindBound", "DeregBound", "ForeignInvalidate"},
	}, memoryMix{windows: true})
	hazardDialogueCases = memoryDialogue(conformance.Case{
		ID: "dialogue/verbs-memory/windows-of-closed-queue-pairs", Needs: verbs.CapMWType1 | verbs.CapMWType2 | verbs.CapLocalInv | verbs.CapSendInv,
		Labels:  []string{conformance.Dangerous},
		Cite:    cite("ibv_bind_mw(3)", "verbs/mw/7", "verbs/mw/12", "verbs/mw/16", "verbs/mr/10", "verbs/qp/8"),
		Title:   "Queue pairs can be closed while windows are bound to them, and free windows cannot be invalidated",
		Sends:   "as dialogue/verbs-memory/windows, with bound windows when a queue pair is closed, and messages that invalidate free windows",
		Expects: "the results and keys of a model, and its content of the memory; windows that can be freed",
		Defects: []string{"UnboundInvalidate", "BoundMWBusy"},
	}, memoryMix{windows: true, hazards: true})
)
