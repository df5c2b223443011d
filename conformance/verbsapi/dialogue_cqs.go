package verbsapi

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance/model"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// modelCQ is a completion queue and its model.
type modelCQ struct {
	*model.VerbsCQ
	cq   verbs.CQ
	name string
}

// cqSet is two completion queues on a channel, with their models.
type cqSet struct {
	*rig.Rig
	channel verbs.CompChannel
	cqs     [2]*modelCQ
	// polled is called for each polled completion with that of the model; nil for no call.
	polled func(*verbs.WC, *model.VerbsCompletion)
}

// openCQs creates the channel and two CQs of this depth.
func (s *cqSet) openCQs(depth int) {
	s.channel = rig.Result(s.Device.CreateCompChannel())(s, "a channel")
	for i := range s.cqs {
		s.createCQ(i, depth)
	}
}

// closeCQs closes the completion queues and the channel.
func (s *cqSet) closeCQs() {
	for _, cq := range s.cqs {
		s.Must(cq.name+" that can be closed", cq.cq.Close())
	}
	s.Must("a channel that can be closed", s.channel.Close())
}

// createCQ creates the i-th CQ and its model.
func (s *cqSet) createCQ(i, depth int) {
	cq := newCQ(s.Rig, depth, s.channel)
	s.Check(cq.Depth() >= depth, fmt.Sprintf("a depth of %d or more", depth), "%d", cq.Depth())
	s.cqs[i] = &modelCQ{VerbsCQ: &model.VerbsCQ{Depth: cq.Depth()}, cq: cq, name: fmt.Sprintf("CQ %d", i+1)}
}

// overrun reports whether one of the CQs has overrun in the model.
func (s *cqSet) overrun() bool {
	return slices.ContainsFunc(s.cqs[:], func(cq *modelCQ) bool { return cq.Overrun })
}

// poll polls a CQ for at most k completions. The case fails unless it gets those of the model
// within the response timeout, and no others.
func (s *cqSet) poll(cq *modelCQ, k int) {
	want := min(k, cq.Len())
	got := 0
	into := make([]verbs.WC, k)
	for until := s.Now() + s.ResponseTimeout(); ; s.Sleep(shortWait) {
		n := rig.Result(cq.cq.Poll(into[got:]))(s, cq.name+" that can be polled")
		if got += n; got >= want || s.Now() >= until {
			break
		}
	}
	for i := range into[:got] {
		s.Note("%s: %s", cq.name, rig.Describe(&into[i]))
		wc, err := cq.Take(&into[i])
		if err != nil {
			s.Fail(err.Error(), "%s, queue pair %#x", rig.Describe(&into[i]), uint32(into[i].QPN))
		}
		if s.polled != nil {
			s.polled(&into[i], wc)
		}
	}
	s.Check(got == want, fmt.Sprintf("%d completions from polls of %s", want, cq.name), "%d", got)
}

// pollAll polls all completions of the model, and fails the case if a CQ has another one.
func (s *cqSet) pollAll() {
	for _, cq := range s.cqs {
		s.poll(cq, cq.Len()+1)
	}
}

// arm polls all completions of a CQ and arms it. An armed CQ is armed again only to change from
// solicited completions to all: in other cases the manual pages leave open how many events it
// raises.
func (s *cqSet) arm(cq *modelCQ, solicitedOnly bool) {
	s.poll(cq, cq.Len()+1)
	if cq.Arm == model.VerbsArmedAny || solicitedOnly && cq.Arm != model.VerbsUnarmed {
		return
	}
	s.Note("arm %s, solicited only %v", cq.name, solicitedOnly)
	s.Must(cq.name+" that can be armed", cq.cq.ReqNotify(solicitedOnly))
	cq.ArmFor(solicitedOnly)
}

// resize resizes a CQ to a depth selected by the random number n, often about the number of its
// completions. If the device must accept the depth, it is raised to minDepth.
func (s *cqSet) resize(cq *modelCQ, n, minDepth int) {
	if !s.Caps.Has(verbs.CapResizeCQ) {
		return
	}
	limit := s.QueryDevice().MaxCQE
	depth := []int{cq.Len() - 1, cq.Len(), cq.Len() + 1, 1 + n%20, 0, limit + 1}[n%6]
	if !cq.RefusesDepth(depth, limit) {
		depth = max(depth, minDepth)
	}
	err := cq.cq.Resize(depth)
	s.Note("resize %s with %d completions to %d: %v", cq.name, cq.Len(), depth, err)
	if cq.RefusesDepth(depth, limit) {
		s.MustFail(fmt.Sprintf("a depth of %d for %s with %d completions", depth, cq.name, cq.Len()), err, nil)
		s.Check(cq.cq.Depth() == cq.Depth, fmt.Sprintf("a depth of %d still", cq.Depth), "%d", cq.cq.Depth())
		return
	}
	s.Must(fmt.Sprintf("a depth of %d for %s with %d completions", depth, cq.name, cq.Len()), err)
	s.Check(cq.cq.Depth() >= depth, fmt.Sprintf("a depth of %d or more", depth), "%d", cq.cq.Depth())
	cq.Depth = cq.cq.Depth()
}

// expectOverrun fails the case unless polls of a CQ that has overrun return ErrOverrun, at the
// latest when it has no more completions.
func (s *cqSet) expectOverrun(cq *modelCQ) {
	n, err := 1, error(nil)
	for n > 0 && err == nil {
		n, err = cq.cq.Poll(make([]verbs.WC, 64))
	}
	s.MustFail("polling a CQ that has lost completions", err, verbs.ErrOverrun)
}

// expectCompletionEvents fails the case unless the events of the channel are those of the model.
func (s *cqSet) expectCompletionEvents() {
	timeout := func() time.Duration {
		if slices.ContainsFunc(s.cqs[:], func(cq *modelCQ) bool { return cq.Events > 0 }) {
			return s.ResponseTimeout()
		}
		return 0
	}
	for {
		cq, err := s.channel.Wait(timeout())
		if errors.Is(err, verbs.ErrTimeout) {
			break
		}
		s.Must("completion events", err)
		i := slices.IndexFunc(s.cqs[:], func(m *modelCQ) bool { return m.cq == cq })
		s.Check(i >= 0 && s.cqs[i].Events > 0, "no completion event of this CQ", "an event of CQ %d", i+1)
		s.cqs[i].Events--
	}
	for _, cq := range s.cqs {
		s.Check(cq.Events == 0, "a completion event of "+cq.name, "none")
	}
}

// expectPosted fails the case unless a post of total requests has posted a number between the least
// and the most that the model's queue has room for. If requests complete at once (atOnce), all may
// be posted. A post of fewer than total must return ErrNoMemory.
func (s *cqSet) expectPosted(queue *model.VerbsQueue, total, posted int, err error, atOnce bool) {
	least, most := queue.Room()
	if atOnce {
		most = total
	}
	least, most = min(least, total), min(most, total)
	s.Check(posted >= least && posted <= most, fmt.Sprintf("%d to %d of %d requests posted", least, most, total), "%d, %v", posted, err)
	if posted < total {
		s.MustFail("posting to a full queue", err, verbs.ErrNoMemory)
	} else {
		s.Must("a post", err)
	}
}
