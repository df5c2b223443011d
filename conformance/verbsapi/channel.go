package verbsapi

import (
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var channelCases = []conformance.Case{{
	ID: "verbs/channel/event-for-each-arm", Cite: cite("ibv_req_notify_cq(3)", "verbs/channel/1"),
	Title:   "Every time a completion queue is armed, its next completion raises an event that names it",
	Sends:   "five rounds of: arm, a completion, wait; then three rounds of arm and a completion, and three waits",
	Expects: "an event for each arm",
	Defects: []string{"EventsHalved", "UnreadEventAbsorbs"}, Run: onChannel(func(c *channel) {
		for range 5 {
			c.arm(c.cq, false)
			c.source.addCompletions(1)
			c.expectEvent(c.cq)
			pollCompletions(c.Rig, c.cq, 1, 4)
		}
		for range 3 {
			c.arm(c.cq, false)
			c.source.addCompletions(1)
			pollCompletions(c.Rig, c.cq, 1, 4)
		}
		for range 3 {
			c.expectEvent(c.cq)
		}
	}),
}, {
	ID: "verbs/channel/one-event-per-arm", Cite: cite("ibv_req_notify_cq(3)", "verbs/channel/2"),
	Title:   "Arming a completion queue causes one event, however many completions follow",
	Sends:   "an arm and three completions",
	Expects: "one event",
	Defects: []string{"ArmStays"}, Run: onChannel(func(c *channel) {
		c.arm(c.cq, false)
		c.source.addCompletions(1)
		c.expectEvent(c.cq)
		c.source.addCompletions(2)
		c.expectNoEvent()
	}),
}, {
	ID:   "verbs/channel/arming-twice-is-arming-once",
	Cite: cite("ibv_req_notify_cq(3)", "verbs/channel/3"), Level: conformance.Should,
	// The manual page could also mean one event per call. Devices have one bit per
	// queue, and IBTA describes an armed state.
	Title:   "A completion queue that is armed again before its event raises one event",
	Sends:   "three arms and three completions",
	Expects: "one event",
	Defects: []string{"ArmsCount"}, Run: onChannel(func(c *channel) {
		c.arm(c.cq, false)
		c.arm(c.cq, false)
		c.arm(c.cq, false)
		c.source.addCompletions(3)
		c.expectEvent(c.cq)
		c.expectNoEvent()
	}),
}, {
	ID: "verbs/channel/silent-until-armed", Cite: cite("ibv_req_notify_cq(3)", "verbs/channel/4"),
	Title:   "A completion queue that was never armed raises no event",
	Sends:   "three completions",
	Expects: "no event",
	Defects: []string{"ArmedFromBirth"}, Run: onChannel(func(c *channel) {
		c.source.addCompletions(3)
		c.expectNoEvent()
	}),
}, {
	ID:   "verbs/channel/earlier-completions-make-no-event",
	Cite: cite("ibv_req_notify_cq(3)", "verbs/channel/5"), Level: conformance.Should,
	// The manual page speaks of new entries, which is why applications poll once more
	// after arming. Some devices also report entries that were not polled yet.
	Title:   "Arming causes an event for later completions, not for existing ones",
	Sends:   "a completion, an arm, a wait; then another completion",
	Expects: "no event for the first; one for the second",
	Defects: []string{"ArmLooksBack"}, Run: onChannel(func(c *channel) {
		c.source.addCompletions(1)
		c.Sleep(shortWait)
		c.arm(c.cq, false)
		c.expectNoEvent()
		c.source.addCompletions(1)
		c.expectEvent(c.cq)
		pollCompletions(c.Rig, c.cq, 2, 4)
	}),
}, {
	ID: "verbs/channel/solicited-only", Cite: cite("ibv_req_notify_cq(3)", "verbs/channel/6"),
	Title:   "A completion queue that is armed for solicited completions raises an event for a solicited one only",
	Sends:   "a message of the peer that does not solicit an event, one of the device, and one of the peer that does",
	Expects: "an event for the last only",
	Defects: []string{"SolicitedIsAny", "SolicitedMisses"}, Run: onChannel(func(c *channel) {
		l := newPair(rig.NewPair(c.Rig), setup{modifyInit: func(init *verbs.QPInit) { init.SendCQ, init.RecvCQ = c.cq, c.cq }})
		c.arm(c.cq, true)
		for _, dir := range []struct{ from, to *endpoint }{{l.partner, l.dut}, {l.dut, l.partner}} {
			dir.to.postRecv(1, recvOffset, 64)
			dir.from.PostSend(dir.from.qp, dir.from.sendWR(2, 0, 16))
			dir.from.expectSuccess()
			dir.to.expectSuccess()
		}
		c.expectNoEvent()
		l.dut.postRecv(1, recvOffset, 64)
		wr := l.partner.sendWR(2, 0, 16)
		wr.Flags |= verbs.SendSolicited
		l.partner.PostSend(l.partner.qp, wr)
		c.expectEvent(c.cq)
	}),
}, {
	ID: "verbs/channel/errors-are-solicited", Cite: cite("ibv_req_notify_cq(3)", "verbs/channel/7"),
	Title:   "A completion with an error raises an event also if the queue is armed for solicited ones",
	Sends:   "an arm for solicited completions, and a completion with an error; then an arm, and a receive for the queue pair that has failed",
	Expects: "an event each time",
	Defects: []string{"SolicitedMisses"}, Run: onChannel(func(c *channel) {
		c.arm(c.cq, true)
		c.source.addCompletions(1)
		c.expectEvent(c.cq)
		c.arm(c.cq, true)
		c.Note("a receive is posted to the failed queue pair")
		c.PostRecv(c.source.qp, 9, c.source.mem.SGE(0, 64))
		c.expectEvent(c.cq)
	}),
}, {
	ID: "verbs/channel/all-overrides-solicited", Cite: cite("C11-31, C11-32", "verbs/channel/8"),
	Title:   "Arming for all completions overrides arming for solicited ones, earlier or later",
	Sends:   "an arm for solicited completions, one for all, and an unsolicited message; then the same with the arms in the other order",
	Expects: "an event each time",
	Defects: []string{"ArmLost"}, Run: onChannel(func(c *channel) {
		l := newPair(rig.NewPair(c.Rig), setup{modifyInit: func(init *verbs.QPInit) { init.SendCQ, init.RecvCQ = c.cq, c.cq }})
		for _, solicitedFirst := range []bool{true, false} {
			c.arm(c.cq, solicitedFirst)
			c.arm(c.cq, !solicitedFirst)
			l.dut.postRecv(1, recvOffset, 64)
			l.partner.PostSend(l.partner.qp, l.partner.sendWR(2, 0, 16))
			c.expectEvent(c.cq)
			pollCompletions(c.Rig, c.cq, 1, 4)
		}
	}),
}, {
	ID: "verbs/channel/several-queues", Cite: cite("ibv_get_cq_event(3)", "verbs/channel/9"),
	Title:   "A channel of several completion queues names the one that has the event",
	Sends:   "a completion on each of three queues of a channel, the last first",
	Expects: "an event that names each",
	Defects: []string{"EventNamesFirst"}, Run: onChannel(func(c *channel) {
		queues := []verbs.CQ{c.cq, newCQ(c.Rig, 8, c.CompChannel), newCQ(c.Rig, 8, c.CompChannel)}
		for _, cq := range queues {
			c.arm(cq, false)
		}
		for _, i := range []int{2, 0, 1} {
			newFlushSource(c.Rig, queues[i]).addCompletions(1)
			c.expectEvent(queues[i])
		}
	}),
}, {
	ID: "verbs/channel/wait-waits", Cite: cite(packageVerbs, "verbs/channel/10"),
	Title:   "A wait for an event ends at its timeout, or as soon as there is an event",
	Sends:   "a wait without an event; a wait for a completion 30 ms later",
	Expects: "a timeout, not before its time; then the event, not before its completion and within a second of it",
	Defects: []string{"WaitImpatient", "EventsLate"}, Run: onChannel(func(c *channel) {
		expectTimeout(c.Rig, waitTime, func(timeout time.Duration) error { return errorOf(c.Wait(timeout)) })
		c.arm(c.cq, false)
		c.source.postReceives(1)
		expectPromptly(c.Rig, "a completion", c.source.flush, func() { c.expectEvent(c.cq) })
	}),
}, {
	ID: "verbs/channel/busy-with-a-queue", Cite: cite("ibv_destroy_comp_channel(3)", "verbs/channel/11"),
	Title:   "A channel cannot be closed while a completion queue is on it",
	Expects: "EBUSY, until the queue is closed",
	Defects: []string{"BusyClosed"}, Run: rig.Body(func(r *rig.Rig) {
		ch := newChannel(r)
		cq := newCQ(r, 8, ch)
		r.MustFail("closing a channel with a completion queue", ch.Close(), verbs.ErrBusy)
		r.Must("a completion queue that can be closed", cq.Close())
		r.Must("a channel that can be closed", ch.Close())
	}),
}, {
	ID: "verbs/channel/close-ends-a-wait", Cite: cite(packageVerbs, "verbs/channel/12"),
	Title:   "Closing a channel ends a wait on it",
	Sends:   "a task that waits for ever; the channel is closed meanwhile",
	Expects: "the wait ends with ErrClosed",
	Defects: []string{"CloseLeavesWaiting"}, Run: rig.Body(func(r *rig.Rig) {
		ch := newChannel(r)
		expectCloseEndsWaits(r, "a channel", ch, func() error { return errorOf(ch.Wait(verbs.Forever)) })
	}),
}, {
	ID: "verbs/channel/arm-needs-a-channel",
	// The manual page requires a channel. Some devices accept the call without one.
	Cite: cite("ibv_req_notify_cq(3)", "verbs/channel/13"), Level: conformance.Should,
	Title:   "A completion queue without a channel cannot be armed",
	Expects: "a refusal, for all completions and for solicited ones",
	Defects: []string{"ArmsWithoutChannel"}, Run: rig.Body(func(r *rig.Rig) {
		for _, solicited := range []bool{false, true} {
			r.MustFail("arming a completion queue without a channel", r.CQ.ReqNotify(solicited), nil)
		}
	}),
}, {
	ID: "verbs/channel/closed-queues-have-no-events", Cite: cite("ibv_get_cq_event(3)", "verbs/channel/14"),
	Title:   "Closing a completion queue removes its events, and leaves those of others",
	Sends:   "an arm and a completion, twice, on each of three queues of a channel; the first and the last are closed before a wait",
	Expects: "the two events of the second only",
	Defects: []string{"ClosedCQsReport", "CloseDropsOneEvent"}, Run: onChannel(func(c *channel) {
		queues := []verbs.CQ{c.cq, newCQ(c.Rig, 8, c.CompChannel), newCQ(c.Rig, 8, c.CompChannel)}
		for _, cq := range queues {
			s := newFlushSource(c.Rig, cq)
			for range 2 {
				c.arm(cq, false)
				s.addCompletions(1)
				pollCompletions(c.Rig, cq, 1, 4)
				c.Must("a queue pair that can be closed", s.qp.Close())
			}
		}
		c.Sleep(shortWait)
		for _, i := range []int{0, 2} {
			c.Must("a completion queue that can be closed", queues[i].Close())
		}
		c.expectEvent(queues[1])
		c.expectEvent(queues[1])
		c.expectNoEvent()
	}),
}}

// channel is a completion channel with one CQ and a source of completions on it.
type channel struct {
	*rig.Rig
	verbs.CompChannel
	cq     verbs.CQ
	source *flushSource
}

// onChannel makes the body of a case from a function that uses a completion channel with a CQ and a
// source of completions.
func onChannel(body func(*channel)) func(*conformance.Bench) error {
	return rig.Body(func(r *rig.Rig) {
		c := &channel{Rig: r, CompChannel: newChannel(r)}
		c.cq = newCQ(r, 64, c.CompChannel)
		c.source = newFlushSource(r, c.cq)
		body(c)
	})
}

// newChannel makes a completion channel, or ends the case.
func newChannel(r *rig.Rig) verbs.CompChannel {
	return rig.Result(r.Device.CreateCompChannel())(r, "a completion channel")
}

// arm requests an event for the next completion of a CQ, or for the next solicited one.
func (c *channel) arm(cq verbs.CQ, solicited bool) {
	c.Must("a completion queue that can be armed", cq.ReqNotify(solicited))
}

// expectEvent fails the case unless the next event arrives in time and is of this CQ.
func (c *channel) expectEvent(want verbs.CQ) {
	got, err := c.Wait(c.ResponseTimeout())
	switch {
	case errors.Is(err, verbs.ErrTimeout):
		c.Fail("a completion event", "none in %v", c.ResponseTimeout())
	case err != nil:
		c.Must("completion events", err)
	case got != want:
		c.Fail("an event of the queue that has the completion", "of another")
	}
}

// waitTime is the timeout of waits in which no event is raised, and in other cases the time after
// which an event is raised.
const waitTime = 30 * time.Millisecond

// expectTimeout fails the case unless a wait ends with ErrTimeout, and not before its timeout.
func expectTimeout(r *rig.Rig, timeout time.Duration, wait func(timeout time.Duration) error) {
	began := r.Now()
	err := wait(timeout)
	r.Check(errors.Is(err, verbs.ErrTimeout), "ErrTimeout", "%v", err)
	r.Check(r.Now()-began >= timeout, fmt.Sprintf("a timeout after %v", timeout), "after %v", r.Now()-began)
}

// expectPromptly calls await, which waits for an event, while a task sleeps for waitTime and then
// calls cause, which raises the event. The case fails if await returns before waitTime has passed,
// or more than a second later.
func expectPromptly(r *rig.Rig, what string, cause, await func()) {
	began := r.Now()
	task := r.Go(what, func() error {
		return rig.Catch(func() { r.Sleep(waitTime); cause() })
	})
	await()
	took := r.Now() - began
	r.Check(took >= waitTime && took < waitTime+time.Second,
		fmt.Sprintf("the event of %s after %v to %v", what, waitTime, waitTime+time.Second), "after %v", took)
	r.Must(what, task.Wait(r.ResponseTimeout()))
}

// expectNoEvent fails the case if an event arrives within shortWait.
func (c *channel) expectNoEvent() {
	_, err := c.Wait(shortWait)
	c.Check(err != nil, "no completion event", "one")
	c.Check(errors.Is(err, verbs.ErrTimeout), "ErrTimeout", "%v", err)
}

// expectSuccess fails the case unless the next completion on the endpoint's send CQ has status
// success.
func (e *endpoint) expectSuccess() {
	wc, ok := e.PollCQ(e.sendCQ, e.ResponseTimeout())
	e.Check(ok && wc.Status == verbs.WCSuccess, "a completion", "%s", rig.Describe(&wc))
}
