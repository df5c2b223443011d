package perf

import (
	"context"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Stream moves messages one way as fast as they go: from the client by WRITE
// and SEND, to the client by READ.
type Stream struct {
	Op       verbs.WROpcode // OpRDMAWrite, OpRDMARead or OpSend
	Bytes    int            // of a message
	Duration time.Duration  // 0 means 100 ms
	// Singly posts each message by itself, as programs do that have no more than
	// one to send at a time. Otherwise they are posted in bursts.
	Singly bool
}

const (
	// streamMemory is how much memory messages are taken from and put into, in
	// turn: more than the caches nearest to a core hold, less than the others.
	streamMemory = 1 << 20
	// streamFlight is how many bytes are on their way, if they are messages
	// enough but not too many.
	streamFlight            = 4 << 20
	streamLeast, streamLots = 4, 64
	streamBurst             = 16
)

// Run plays a side. The client gets the goodput in Gb/s.
func (st Stream) Run(ctx context.Context, s *Side) (gbps float64, err error) {
	st.Duration = orElse(st.Duration, 100*time.Millisecond)
	switch {
	case st.Bytes < 1:
		return 0, fmt.Errorf("stream: message of %d bytes", st.Bytes)
	case s.Service == Datagrams && st.Op != verbs.OpSend:
		return 0, fmt.Errorf("stream of %v: datagrams are only sent", st.Op)
	}
	depth := min(max(streamFlight/st.Bytes, streamLeast), streamLots)
	if st.Op == verbs.OpRDMARead {
		depth = min(depth, maxReads)
	}
	way := oneWay{
		load:   load{op: st.Op, bytes: st.Bytes, depth: depth, burst: min(depth, streamBurst), least: 1, every: 1, slots: max(1, streamMemory/st.Bytes)},
		memory: max(streamMemory, st.Bytes), qps: 1, duration: st.Duration,
	}
	switch {
	case st.Singly:
		way.burst = 1
	case s.Service != Reliable && st.Op != verbs.OpRDMARead:
		// Messages complete while they are being posted: whoever posted again for
		// each of them would send them one by one.
		way.least = max(1, depth/4)
	}
	if st.Op == verbs.OpSend {
		way.window = 2 * depth
	}
	messages, took, err := way.run(ctx, s)
	if err != nil || s.Role == Server {
		return 0, wrap(err, "stream of %v, %d bytes, %v", st.Op, st.Bytes, s.Role)
	}
	return messages * float64(st.Bytes) * 8 / float64(took.Nanoseconds()), nil
}

// oneWay is what all programs are that send one way for a while.
type oneWay struct {
	load
	qps, memory      int
	duration, warmup time.Duration
}

// run plays a side. The client gets how many messages arrived, and how long that
// took.
func (w oneWay) run(ctx context.Context, s *Side) (messages float64, took time.Duration, err error) {
	sh := shape{qps: w.qps, sends: w.depth, recvs: max(1, w.window), memory: w.memory}
	if s.Service.credits() && w.window > 0 {
		if s.Role == Server {
			sh.sends = creditSlots
		} else {
			sh.recvs = creditSlots
		}
	}
	c, err := s.connect(ctx, sh)
	if err != nil {
		return 0, 0, err
	}
	defer c.Close()
	if s.Role == Server {
		err = w.serve(ctx, c)
	} else {
		messages, took, err = w.drive(ctx, c)
	}
	if err != nil {
		return 0, 0, err
	}
	return messages, took, s.meet(ctx) // neither side goes while the other may still need it
}

func (w oneWay) drive(ctx context.Context, c *conn) (messages float64, took time.Duration, err error) {
	out, err := newSender(c, w.load)
	if err != nil {
		return 0, 0, err
	}
	if err := c.side.meet(ctx); err != nil { // receives are posted
		return 0, 0, err
	}
	return out.measure(ctx, w.duration, w.warmup)
}

// serve takes as many messages as the client says it has sent, and tells how
// many have come. What WRITE and READ need of this side its device does.
func (w oneWay) serve(ctx context.Context, c *conn) error {
	if w.window == 0 {
		if err := c.side.meet(ctx); err != nil {
			return err
		}
		sent, err := swap(ctx, c.side, tally{})
		if err != nil {
			return err
		}
		_, err = swap(ctx, c.side, sent)
		return err
	}
	in := newInbox(c, w.bytes, w.window)
	if err := in.fill(); err != nil {
		return err
	}
	if err := c.side.meet(ctx); err != nil {
		return err
	}
	got, err := in.drain(ctx)
	if err != nil {
		return err
	}
	_, err = swap(ctx, c.side, tally{Messages: got})
	return err
}

// wrap says where an error, if it is one, is from.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}
