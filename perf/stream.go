package perf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Stream transfers messages one way: from the client by WRITE or SEND, to the
// client by READ.
type Stream struct {
	Op       verbs.WROpcode // OpRDMAWrite, OpRDMARead or OpSend
	Bytes    int            // of a message
	Duration time.Duration  // 0 means 100 ms
	// BothWays lets the server send at the same time, by WRITE or READ. The result is the sum of
	// both directions, which are taken to be equal.
	BothWays bool
	// QPs is the number of queue pairs; 0 means 1.
	QPs int
	// NoBursts posts each message separately. Otherwise messages are posted in bursts.
	NoBursts bool
}

const (
	// streamMemory is the size of the buffer whose slots the messages use in turn: larger
	// than L1, smaller than the last-level cache.
	streamMemory = 1 << 20
	// streamInFlight is the number of bytes in flight, within the limits of the depth.
	streamInFlight                 = 4 << 20
	streamMinDepth, streamMaxDepth = 4, 64
	streamBurst                    = 16
)

// Run runs one side of the stream. The client returns the goodput in Gb/s.
func (st Stream) Run(ctx context.Context, s *Side) (gbps float64, err error) {
	st.Duration = cmp.Or(st.Duration, 100*time.Millisecond)
	switch {
	case st.Bytes < 1:
		return 0, fmt.Errorf("stream: message of %d bytes", st.Bytes)
	case s.Service == ServiceUD && st.Op != verbs.OpSend:
		return 0, fmt.Errorf("stream of %v: UD supports only SEND", st.Op)
	case st.BothWays && st.Op == verbs.OpSend:
		return 0, errors.New("stream: sends go one way")
	}
	depth := min(max(streamInFlight/st.Bytes, streamMinDepth), streamMaxDepth)
	if st.Op == verbs.OpRDMARead {
		depth = min(depth, maxReads)
	}
	traffic := oneWayTraffic{
		sendLoad: sendLoad{op: st.Op, bytes: st.Bytes, depth: depth, burst: min(depth, streamBurst), minBurst: 1, signalEvery: 1, slots: max(1, streamMemory/st.Bytes)},
		memory:   max(streamMemory, st.Bytes), qps: max(1, st.QPs), duration: st.Duration, bothWays: st.BothWays,
	}
	switch {
	case st.NoBursts:
		traffic.burst = 1
	case s.Service != ServiceRC && st.Op != verbs.OpRDMARead:
		// Over UD and iWARP, messages complete during the post, without an acknowledgement; without
		// a minimum burst (a quarter of the queue) each would be sent alone.
		traffic.minBurst = max(1, depth/4)
	}
	if st.Op == verbs.OpSend {
		traffic.window = 2 * depth // receives that the server posts
	}
	messages, took, err := traffic.run(ctx, s)
	if err != nil || s.Role == Server {
		return 0, wrap(err, "stream of %v, %d bytes, %v", st.Op, st.Bytes, s.Role)
	}
	if st.BothWays {
		messages *= 2
	}
	return messages * float64(st.Bytes) * 8 / float64(took.Nanoseconds()), nil
}

// oneWayTraffic configures a program that sends one way. memory is the bytes of its buffer.
type oneWayTraffic struct {
	sendLoad
	qps, memory      int
	duration, warmup time.Duration
	bothWays         bool // the server sends, too
}

// run connects and runs one side. The client returns how many messages arrived, in what time.
func (w oneWayTraffic) run(ctx context.Context, s *Side) (messages float64, took time.Duration, err error) {
	cfg := connConfig{qps: w.qps, sends: w.depth, recvs: max(1, w.window), memory: w.memory}
	if s.Service.needsCredits() && w.window > 0 { // the server sends credits to the client
		if s.Role == Server {
			cfg.sends = maxCredits
		} else {
			cfg.recvs = maxCredits
		}
	}
	c, err := s.connect(ctx, cfg)
	if err != nil {
		return 0, 0, err
	}
	defer c.Close()
	if s.Role == Server && !w.bothWays {
		err = w.runServer(ctx, c)
	} else {
		messages, took, err = w.runClient(ctx, c)
	}
	if err != nil {
		return 0, 0, err
	}
	return messages, took, s.barrier(ctx) // close only when both are done
}

// runClient sends once the server has posted its receives. It returns how many messages arrived,
// and in what time.
func (w oneWayTraffic) runClient(ctx context.Context, c *conn) (messages float64, took time.Duration, err error) {
	out, err := newSender(c, w.sendLoad)
	if err != nil {
		return 0, 0, err
	}
	if err := c.side.barrier(ctx); err != nil { // receives are posted
		return 0, 0, err
	}
	return out.measure(ctx, w.duration, w.warmup)
}

// runServer receives until all messages of the client have arrived, and sends their number
// back. Without receives (WRITE and READ) it sends back the number that the client reports.
func (w oneWayTraffic) runServer(ctx context.Context, c *conn) error {
	if w.window == 0 {
		if err := c.side.barrier(ctx); err != nil {
			return err
		}
		sent, err := swap(ctx, c.side, uint64(0)) // the client ignores the 0
		if err != nil {
			return err
		}
		_, err = swap(ctx, c.side, sent)
		return err
	}
	in := newReceiver(c, w.bytes, w.window)
	if err := in.postAll(); err != nil {
		return err
	}
	if err := c.side.barrier(ctx); err != nil {
		return err
	}
	got, err := in.drain(ctx)
	if err != nil {
		return err
	}
	_, err = swap(ctx, c.side, got)
	return err
}

// wrap adds context to an error that is not nil.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}
