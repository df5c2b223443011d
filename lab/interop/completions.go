package interop

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

const (
	// maxSpins is how often an empty queue is polled before the poller sleeps for pollPause:
	// an emulated guest needs the processor, too.
	maxSpins  = 100
	pollPause = 20 * time.Microsecond
	// eventSlice bounds one wait for an event, so that the end of a context is noticed.
	eventSlice = 50 * time.Millisecond
)

// completions is a completion queue that is polled, or waited for by events.
type completions struct {
	cq      verbs.CQ
	channel verbs.CompChannel // nil if it is polled
	buf     [32]verbs.WC
}

// newCompletions creates a completion queue of the given depth, with a completion channel
// if the program waits for events.
func newCompletions(dev verbs.Context, depth int, events bool) (*completions, error) {
	c := new(completions)
	var err error
	if events {
		if c.channel, err = dev.CreateCompChannel(); err != nil {
			return nil, err
		}
	}
	if c.cq, err = dev.CreateCQ(verbs.CQInit{Depth: depth, Channel: c.channel}); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if events {
		err = c.cq.ReqNotify(false)
	}
	return c, err
}

// Close closes the completion queue and its channel.
func (c *completions) Close() error {
	var errs []error
	if c.cq != nil {
		errs = append(errs, c.cq.Close())
	}
	if c.channel != nil {
		errs = append(errs, c.channel.Close())
	}
	return errors.Join(errs...)
}

// handle passes completions to f until done returns true or f returns an error.
func (c *completions) handle(ctx context.Context, f func(*verbs.WC) error, done func() bool) error {
	for !done() {
		wcs, err := c.next(ctx)
		if err != nil {
			return err
		}
		for i := range wcs {
			if err := f(&wcs[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// next returns at least one completion, valid until the next call, or the
// reason why ctx ended.
func (c *completions) next(ctx context.Context) ([]verbs.WC, error) {
	for idle := 0; ; idle++ {
		n, err := c.cq.Poll(c.buf[:])
		if n > 0 || err != nil {
			return c.buf[:n], err
		}
		if c.channel != nil {
			if err := c.waitEvent(ctx); err != nil {
				return nil, err
			}
			continue
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if idle < maxSpins {
			runtime.Gosched()
		} else {
			time.Sleep(pollPause)
		}
	}
}

// waitEvent waits for an event and requests the next one, before the caller polls: a completion
// after the request causes an event. It fails if ctx ends, also if a completion without an event
// is in the queue.
func (c *completions) waitEvent(ctx context.Context) error {
	for {
		cq, err := c.channel.Wait(eventSlice)
		switch {
		case err == nil && cq != c.cq:
			return errors.New("an event for another completion queue")
		case err == nil:
			return c.cq.ReqNotify(false)
		case !errors.Is(err, verbs.ErrTimeout):
			return err
		case ctx.Err() == nil:
			continue
		}
		if n, _ := c.cq.Poll(c.buf[:1]); n > 0 {
			return fmt.Errorf("%w: a completion (%v) is there, but its event never came", context.Cause(ctx), c.buf[0].Opcode)
		}
		return context.Cause(ctx)
	}
}
