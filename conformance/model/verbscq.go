package model

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/verbs"
)

// VerbsCompletion is an expected completion. Fields of verbs.WC that are not valid in a
// failed completion are compared only if Status is WCSuccess.
type VerbsCompletion struct {
	verbs.WC
	// Solicited: the completion is an event for a CQ that is armed for solicited ones only.
	Solicited bool
	// Payload is that of a received message.
	Payload []byte
	// orStatus are other permitted statuses.
	orStatus []verbs.WCStatus
	// srq is the shared receive queue whose receive is used, which may be any of its receives.
	srq   *VerbsSRQ
	queue *VerbsQueue
}

// VerbsArm says which completions cause an event of a CQ.
type VerbsArm int

// Arm states.
const (
	VerbsUnarmed VerbsArm = iota
	VerbsArmedSolicited
	VerbsArmedAny
)

// VerbsCQ is a model of a completion queue. Completions of one work queue are in order;
// those of different work queues may come in any order.
type VerbsCQ struct {
	Depth int
	// Arm is set by the application, and cleared by an event.
	Arm VerbsArm
	// Events is the number of completion events that were not retrieved yet.
	Events int
	// Overrun: a completion was lost, and the CQ cannot be used any more.
	Overrun     bool
	completions []VerbsCompletion
}

// Len returns the number of completions that were not polled.
func (c *VerbsCQ) Len() int { return len(c.completions) }

// add appends a completion, which may overrun the CQ and raise an event.
func (c *VerbsCQ) add(wc *VerbsCompletion) {
	if len(c.completions) >= c.Depth {
		c.Overrun = true
		return
	}
	c.completions = append(c.completions, *wc)
	if c.Arm == VerbsArmedAny || c.Arm == VerbsArmedSolicited && (wc.Solicited || wc.Status != verbs.WCSuccess) {
		c.Arm = VerbsUnarmed
		c.Events++
	}
}

// ArmFor arms the CQ. A request for any completion overrides one for solicited completions.
func (c *VerbsCQ) ArmFor(solicitedOnly bool) {
	if solicitedOnly {
		c.Arm = max(c.Arm, VerbsArmedSolicited)
	} else {
		c.Arm = VerbsArmedAny
	}
}

// RefusesDepth reports whether the device must refuse to resize the CQ to a depth: one below the
// number of completions or beyond its limit.
func (c *VerbsCQ) RefusesDepth(depth, limit int) bool {
	return depth < max(1, len(c.completions)) || depth > limit
}

// Take removes a polled completion and returns what is expected of it. It returns an error unless
// the completion is the oldest of its work queue and has the expected fields. That of a receive
// from an SRQ may have the ID of any receive posted there.
func (c *VerbsCQ) Take(got *verbs.WC) (*VerbsCompletion, error) {
	seen := make(map[*VerbsQueue]bool)
	var oldest []string
	for i := range c.completions {
		want := c.completions[i]
		if seen[want.queue] {
			continue
		}
		seen[want.queue] = true
		if want.srq != nil && want.QPN == got.QPN && want.srq.Posted[got.WRID] {
			want.WRID = got.WRID
			delete(want.srq.Posted, got.WRID)
		}
		if want.WRID != got.WRID || want.QPN != got.QPN {
			oldest = append(oldest, fmt.Sprintf("%d (%v)", want.WRID, want.Status))
			continue
		}
		if slices.Contains(want.orStatus, got.Status) {
			want.Status = got.Status
		}
		if err := compareWC(&want.WC, got); err != nil {
			return nil, err
		}
		want.queue.retire(want.WRID)
		c.completions = append(c.completions[:i], c.completions[i+1:]...)
		return &want, nil
	}
	return nil, fmt.Errorf("the next completions of the work queues are those of %v", oldest)
}

// Forget removes the completions of a work queue, which is closed.
func (c *VerbsCQ) Forget(q *VerbsQueue) {
	kept := c.completions[:0]
	for i := range c.completions {
		if c.completions[i].queue != q {
			kept = append(kept, c.completions[i])
		}
	}
	c.completions = kept
}

// compareWC returns an error with the expected value of the first valid field that differs; callers
// of Take report it beside the polled completion. In a failed completion only the request, the
// status and the queue pair are valid.
func compareWC(want, got *verbs.WC) error {
	success := want.Status == verbs.WCSuccess
	// Drivers may report a GRH on connected queue pairs too.
	known := verbs.WCWithImm | verbs.WCWithInv | want.Flags&verbs.WCWithGRH
	isRecv := want.Opcode >= verbs.WCOpRecv
	isReadOrAtomic := want.Opcode >= verbs.WCOpRDMARead && want.Opcode <= verbs.WCOpFetchAdd
	for _, f := range []struct {
		name      string
		want, got any
		valid     bool
	}{
		{"status", want.Status, got.Status, true},
		{"QPN", want.QPN, got.QPN, true},
		{"opcode", want.Opcode, got.Opcode, success},
		{"flags", want.Flags, got.Flags & known, success && isRecv},
		{"length", want.ByteLen, got.ByteLen, success && (isRecv || isReadOrAtomic)},
		{"immediate data", want.Imm, got.Imm, success && want.Flags&verbs.WCWithImm != 0},
		{"invalidated key", want.InvalidatedRKey, got.InvalidatedRKey, success && want.Flags&verbs.WCWithInv != 0},
		{"source QPN", want.SrcQP, got.SrcQP, success && want.SrcQP != 0},
	} {
		if f.valid && f.want != f.got {
			return fmt.Errorf("%s %v in the completion of request %d", f.name, f.want, want.WRID)
		}
	}
	return nil
}

// VerbsSRQ is a model of a shared receive queue. Its receives may be used in any order.
type VerbsSRQ struct {
	// Posted are the receives whose completions were not polled, and Left is the number of those
	// that are not used.
	Posted map[uint64]bool
	Left   int
	// Limit raises an event when fewer receives are left, once; 0 if it is not armed.
	Limit  int
	Events int
}

// Post adds a receive.
func (s *VerbsSRQ) Post(id uint64) {
	s.Posted[id] = true
	s.Left++
}

// use takes a receive, and raises the event of the limit, once, if fewer receives are left.
func (s *VerbsSRQ) use() {
	s.Left--
	if s.Left < s.Limit {
		s.Limit = 0
		s.Events++
	}
}
