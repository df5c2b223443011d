package defects

import (
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// channel implements verbs.CompChannel.
type channel struct {
	verbs.CompChannel
	dev *device
}

func (c *channel) inner() verbs.CompChannel { return c.CompChannel }

// CreateCompChannel returns a channel of the device whose Wait returns CQ handles of a defective device.
func (d *device) CreateCompChannel() (verbs.CompChannel, error) {
	c, err := d.Context.CreateCompChannel()
	if err != nil {
		return nil, err
	}
	return &channel{c, d}, nil
}

// Wait returns the program's handle of the CQ with the next completion event.
func (c *channel) Wait(timeout time.Duration) (verbs.CQ, error) {
	cq, err := c.CompChannel.Wait(timeout)
	if err != nil {
		return nil, err
	}
	return handleOf(c.dev, cq), nil
}

// completionQueue implements verbs.CQ.
type completionQueue struct {
	verbs.CQ
	dev        *device
	hasChannel bool

	mu     sync.Mutex
	polled int        // number of completions
	repeat []verbs.WC // WCDoubled: to be reported again
}

func (c *completionQueue) inner() verbs.CQ { return c.CQ }

// CreateCQ creates a CQ and returns a handle that applies the defects to its completions.
func (d *device) CreateCQ(in verbs.CQInit) (verbs.CQ, error) {
	in.Channel = innerOf(in.Channel)
	cq, err := d.Context.CreateCQ(in)
	if err != nil {
		return nil, err
	}
	c := &completionQueue{CQ: cq, dev: d, hasChannel: in.Channel != nil}
	d.addHandle(cq, c)
	return c, nil
}

// ReqNotify arms the device's CQ. With the defect ArmsWithoutChannel, it succeeds without effect on
// a CQ without a channel.
func (c *completionQueue) ReqNotify(solicitedOnly bool) error {
	if c.dev.defects.ArmsWithoutChannel && !c.hasChannel {
		return nil
	}
	return c.CQ.ReqNotify(solicitedOnly)
}

// Poll polls the device's CQ and applies the defects of completions: it changes some, reports some
// again in the next call (WCDoubled) and leaves some out (WCLost). If all were left out, it polls
// again, since 0 would mean an empty CQ.
func (c *completionQueue) Poll(into []verbs.WC) (int, error) {
	c.mu.Lock()
	repeated := copy(into, c.repeat)
	c.repeat = c.repeat[repeated:]
	c.mu.Unlock()
	if repeated > 0 {
		return repeated, nil
	}
	for {
		polled, err := c.CQ.Poll(into) // without c.mu: the call may block in a simulation
		n := c.change(into[:polled])
		if n > 0 || polled == 0 {
			return n, err
		}
	}
}

// change applies the defects to polled completions in place, and returns how many are left. It
// repeats (WCDoubled) or leaves out (WCLost) every fourth completion of the CQ.
func (c *completionQueue) change(wcs []verbs.WC) (n int) {
	defects := &c.dev.defects
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, wc := range wcs {
		c.dev.changeCompletion(&wc)
		c.polled++
		isFourth := c.polled%4 == 0
		if isFourth && defects.WCDoubled {
			c.repeat = append(c.repeat, wc)
		}
		if lost := isFourth && defects.WCLost; !lost {
			wcs[n] = wc
			n++
		}
	}
	return n
}

// changeCompletion applies the defects that change a completion: it hides an invalidation
// (InvalidateUnreported), and for a receive of a connected QP adds the GRH flag on success
// (GRHFlagOnConnected) or changes a protection error to WCLocQPOpErr (RecvErrorIsQPOp).
func (d *device) changeCompletion(wc *verbs.WC) {
	if d.defects.InvalidateUnreported {
		wc.Flags &^= verbs.WCWithInv
		wc.InvalidatedRKey = 0
	}
	if !d.defects.GRHFlagOnConnected && !d.defects.RecvErrorIsQPOp {
		return
	}
	q := d.qpByNumber(wc.QPN)
	if q == nil || q.Type() == verbs.QPTypeUD || !q.completeReceive(wc) {
		return
	}
	switch {
	case wc.Status == verbs.WCSuccess && d.defects.GRHFlagOnConnected:
		wc.Flags |= verbs.WCWithGRH
	case wc.Status == verbs.WCLocProtErr && d.defects.RecvErrorIsQPOp:
		wc.Status = verbs.WCLocQPOpErr
	}
}

// Close closes the device's CQ and forgets the handle.
func (c *completionQueue) Close() error { return c.dev.removeHandle(c.CQ, c.CQ.Close()) }
