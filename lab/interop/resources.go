package interop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

const (
	devicePort = 1
	// guardLen bytes of guardByte lie behind every receive buffer; no message may change them.
	guardLen  = 64
	guardByte = 0xee
	// maxInline is the largest message posted inline. A run of several sizes has both kinds.
	maxInline = 64
	// sendWRID marks the IDs of send requests; the low half is the number of the message or of
	// the queue pair. The ID of a receive request is its slot.
	sendWRID = 1 << 32
	// startPSN makes every run but the shortest wrap its packet sequence numbers.
	startPSN = 0xfffffc
)

// resources are the verbs objects of a program. After the first failure the methods that
// create objects do nothing, and finish returns the failure.
type resources struct {
	dev     verbs.Context
	pd      verbs.PD
	comp    *completions
	created []io.Closer
	err     error
}

// newResources creates a protection domain and a completion queue. The program polls the queue or,
// if events is set, waits for its completion events.
func newResources(dev verbs.Context, cqDepth int, events bool) resources {
	r := resources{dev: dev}
	r.pd = create(&r, dev.AllocPD)
	r.comp = create(&r, func() (*completions, error) { return newCompletions(dev, cqDepth, events) })
	return r
}

// create calls newObject, unless an earlier creation failed. r.close later closes the object.
func create[T io.Closer](r *resources, newObject func() (T, error)) (object T) {
	r.do(func() (err error) {
		if object, err = newObject(); err == nil {
			r.created = append(r.created, object)
		}
		return err
	})
	return object
}

// do calls f unless an earlier call failed.
func (r *resources) do(f func() error) {
	if r.err == nil {
		r.err = f()
	}
}

func (r *resources) regMR(buf []byte, access verbs.Access) verbs.MR {
	return create(r, func() (verbs.MR, error) { return r.pd.RegMR(verbs.MRInit{Buf: buf, Access: access}) })
}

// createQP creates a queue pair with one SGE per request, on the program's completion queue.
func (r *resources) createQP(init verbs.QPInit) verbs.QP {
	return create(r, func() (verbs.QP, error) {
		init.PD, init.SendCQ, init.RecvCQ, init.Caps.MaxSendSGE = r.pd, r.comp.cq, r.comp.cq, 1
		if init.Caps.MaxRecvWR > 0 {
			init.Caps.MaxRecvSGE = 1
		}
		return r.dev.CreateQP(init)
	})
}

// finish ends the set-up of a program. If that failed, it closes all objects and returns the error.
func (r *resources) finish() error {
	if r.err == nil {
		return nil
	}
	return errors.Join(r.err, r.close())
}

// close closes all objects, the last one first. It may be called again.
func (r *resources) close() error {
	var errs []error
	for _, object := range slices.Backward(r.created) {
		errs = append(errs, object.Close())
	}
	r.created = nil
	return errors.Join(errs...)
}

// inlineLen returns the inline capacity of a queue pair that sends messages of the given size; 0 if
// they are too long.
func inlineLen(size int) int {
	if size <= maxInline {
		return size
	}
	return 0
}

// sendWR returns a request that sends buf, which is registered in mr at the given offset.
func sendWR(id uint64, buf []byte, mr verbs.MR, offset int) verbs.SendWR {
	wr := verbs.SendWR{WRID: id, Opcode: verbs.OpSend, Flags: verbs.SendSignaled}
	if len(buf) <= maxInline {
		wr.Flags |= verbs.SendInline
		wr.Inline = buf
	} else {
		wr.SGL = []verbs.SGE{verbs.SGEOf(mr, offset, len(buf))}
	}
	return wr
}

// postSend posts wr. Then it clears inline data, which the device must have copied.
func postSend(qp verbs.QP, wr verbs.SendWR) error {
	_, err := qp.PostSend([]verbs.SendWR{wr})
	if err == nil {
		clear(wr.Inline)
	}
	return err
}

// checkGuard checks the memory behind a receive buffer, which no message may overwrite.
func checkGuard(guard []byte) error {
	if err := check(guard, constant(guardByte)); err != nil {
		return fmt.Errorf("memory behind the buffer was written: %w", err)
	}
	return nil
}

// completionError describes a completion that failed.
func completionError(wc *verbs.WC) error {
	return fmt.Errorf("%v (vendor error %#x) for work request %#x", wc.Status, wc.VendorErr, wc.WRID)
}

const (
	// pageSize is that of the guest: with -c the programs set the first byte of every page of
	// their first message to zero, and the server expects that in its last message.
	pageSize = 4096
	// fillByte fills the buffers of ibv_*_pingpong programs without a shared receive queue.
	fillByte = 0x7b
)

// payload returns byte i of a message.
type payload func(i int) byte

// numbered returns the payload of our message n, a multiplicative hash of n and the position. It
// differs between messages and between packets, and has no zeros, which unwritten memory has.
func numbered(n int) payload {
	return func(i int) byte {
		x := uint32(i+1)*2654435761 ^ uint32(n+1)*0x9e3779b1 // multiplicative hashes of i and n
		x ^= x >> 15
		return byte(x>>16)%255 + 1
	}
}

// constant returns the payload whose bytes are all b.
func constant(b byte) payload { return func(int) byte { return b } }

// checked returns p as a program with -c expects it: the first byte of each page is zero.
func (p payload) checked() payload {
	return func(i int) byte {
		if i%pageSize == 0 {
			return 0
		}
		return p(i)
	}
}

// fill fills b with the payload.
func (p payload) fill(b []byte) {
	for i := range b {
		b[i] = p(i)
	}
}

// check returns an error unless each byte of b equals that of one of the payloads at its place.
func check(b []byte, anyOf ...payload) error {
	for i, got := range b {
		if !slices.ContainsFunc(anyOf, func(p payload) bool { return p(i) == got }) {
			return fmt.Errorf("byte %d of %d is %#02x, want %#02x", i, len(b), got, anyOf[0](i))
		}
	}
	return nil
}

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

// anyCompletion is the argument solicitedOnly of ReqNotify.
const anyCompletion = false

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
		err = c.cq.ReqNotify(anyCompletion)
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

// next returns at least one completion, valid until the next call, or the reason why ctx ended.
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

// waitEvent waits for an event, and requests the next one before the caller polls, so that no later
// completion lacks an event. If ctx ends, it returns an error, which says whether a completion
// without an event is in the queue.
func (c *completions) waitEvent(ctx context.Context) error {
	for {
		cq, err := c.channel.Wait(eventSlice)
		switch {
		case err == nil && cq != c.cq:
			return errors.New("an event for another completion queue")
		case err == nil:
			return c.cq.ReqNotify(anyCompletion)
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
